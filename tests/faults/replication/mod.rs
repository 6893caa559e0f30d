//! Replicas that confirm grants, masters that are replaced, and servers that come back without their data.

mod connected;
mod grace;
mod promoted;
mod replicas;
mod sentinel;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        replicas::rows(),
        grace::rows(),
        connected::rows(),
        sentinel::rows(),
        promoted::rows(),
    ]
    .concat()
}

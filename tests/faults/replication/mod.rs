//! Replicas that confirm grants, masters that are replaced, and servers that come back without their data.

mod confirmed;
mod connected;
mod cut_off;
mod grace;
mod hanging;
mod one_address;
pub(crate) mod pair;
mod promoted;
mod sentinel;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        confirmed::rows(),
        cut_off::rows(),
        grace::rows(),
        hanging::rows(),
        one_address::rows(),
        connected::rows(),
        sentinel::rows(),
        promoted::rows(),
    ]
    .concat()
}

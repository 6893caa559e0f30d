//! What a user of the server may do, and what follows if it may not.

mod by_kind;
pub(crate) mod changed;
mod channels;
pub(crate) mod least;
mod needed;
mod without_publish;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        least::rows(),
        changed::rows(),
        channels::rows(),
        by_kind::rows(),
        needed::rows(),
        needed::hosted::rows(),
        needed::sentinel::rows(),
        without_publish::rows(),
    ]
    .concat()
}

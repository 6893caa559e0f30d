//! Commands whose outcome is unknown, callers that stop waiting, and releases.

mod batch;
pub(crate) mod cancel;
mod changes;
mod drops;
mod numbers;
mod outcome;
mod release;
mod sweep;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        outcome::rows(),
        batch::rows(),
        numbers::rows(),
        sweep::rows(),
        cancel::rows(),
        drops::rows(),
        changes::rows(),
        release::rows(),
    ]
    .concat()
}

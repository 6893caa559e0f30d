//! Commands whose outcome is unknown, callers that stop waiting, and releases.

mod batch;
pub(crate) mod cancel;
mod changes;
mod drops;
mod lost_replies;
mod numbers;
mod release;
mod sweep;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        lost_replies::rows(),
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

//! Commands whose outcome is unknown, callers that stop waiting, and releases.

mod batch;
pub(crate) mod cancel;
mod changes;
mod drops;
mod hand_overs;
mod late_grants;
mod lost_replies;
mod numbers;
mod release;
mod sweep;
mod waits;

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
        late_grants::rows(),
        waits::rows(),
        hand_overs::rows(),
    ]
    .concat()
}

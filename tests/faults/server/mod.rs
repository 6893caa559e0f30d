//! What a server does: it stops and starts, refuses, runs out of memory, and has odd keys.

pub(crate) mod busy;
mod crashes;
mod evicting;
mod keys;
mod outage;
pub(crate) mod refusals;
mod scripts;

use crate::row::Listed;

pub(crate) fn rows() -> Vec<Listed> {
    [
        busy::rows(),
        crashes::rows(),
        evicting::rows(),
        outage::rows(),
        refusals::rows(),
        scripts::rows(),
        keys::rows(),
    ]
    .concat()
}

//! Which family a hold belongs to, as far as its holds are treated alike.
//!
//! [`Family`] says which data a kind keeps. A latch cannot be held: it is refused here, so that both backends can match
//! exhaustively on what is left.

use super::{Fault, Target, cause};
use crate::resource::kind::{Family, Kind};

/// The kinds that can be held, by how they are acquired and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldFamily {
    Lock,
    /// The data of [`Lock`](HoldFamily::Lock), and a queue of waiters in the server.
    Fair,
    ReadWrite,
    Semaphore,
    Permit,
}

impl Target {
    pub(super) fn hold_family(&self) -> Result<HoldFamily, Fault> {
        let kind = self.resource.kind;
        match kind.family() {
            Family::Lock if kind.is_fair() => Ok(HoldFamily::Fair),
            Family::Lock => Ok(HoldFamily::Lock),
            Family::ReadWrite => Ok(HoldFamily::ReadWrite),
            Family::Semaphore => Ok(HoldFamily::Semaphore),
            Family::Permit => Ok(HoldFamily::Permit),
            Family::Latch => Err(unsupported(kind, "be held")),
        }
    }
}

/// The fault of a renewal of permits that have no lease.
pub(super) fn no_lease(kind: Kind) -> Fault {
    unsupported(kind, "be renewed")
}

fn unsupported(kind: Kind, verb: &str) -> Fault {
    Fault::Protocol(cause(format!("a {kind} cannot {verb}")))
}

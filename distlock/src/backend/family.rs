//! Which family a hold belongs to, as far as its holds are treated alike.
//!
//! [`Family`] says which data a kind keeps. Not every family has every verb: a latch cannot be held, and the permits of
//! a plain semaphore have no lease to renew. The conversions here refuse those two, so that both backends can match
//! exhaustively on what is left.

use super::{Fault, Renewal, Target, cause};
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

/// The kinds whose holds have a lease, by how it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseFamily {
    Lock,
    ReadWrite,
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

impl Renewal {
    pub(super) fn lease_family(&self) -> Result<LeaseFamily, Fault> {
        let kind = self.target.resource.kind;
        match kind.family() {
            Family::Lock => Ok(LeaseFamily::Lock),
            Family::ReadWrite => Ok(LeaseFamily::ReadWrite),
            Family::Permit => Ok(LeaseFamily::Permit),
            Family::Semaphore | Family::Latch => Err(unsupported(kind, "be renewed")),
        }
    }
}

fn unsupported(kind: Kind, verb: &str) -> Fault {
    Fault::Protocol(cause(format!("a {kind} cannot {verb}")))
}

//! Which guards have a hold with a lease.

use super::Guard;
use super::from_guard::FromGuard;
use crate::resource::kind::{Family, Kind};

/// A guard whose hold has a lease, so that it can be acquired with [a lease of its own](crate::Acquire::lease). These
/// are all guards except [`Permit`](crate::Permit). This trait cannot be implemented in other crates.
pub trait Leased: FromGuard {
    /// Whether the hold of a primitive of this kind has such a guard.
    #[doc(hidden)]
    fn is_of(kind: Kind) -> bool;
}

impl Leased for Guard {
    fn is_of(kind: Kind) -> bool {
        matches!(kind.family(), Family::Lock | Family::ReadWrite)
    }
}

//! How an acquisition makes its own type of guard, and which of them have a hold with a lease.

use super::Guard;
use crate::resource::kind::{Family, Kind};

/// What an acquisition has granted. Only this crate makes one.
#[derive(Debug)]
pub struct AcquiredGuard(pub(super) Guard);

impl AcquiredGuard {
    pub(crate) fn new(guard: Guard) -> Self {
        Self(guard)
    }
}

/// The type of guard of an acquisition: [`Guard`], or one that contains it.
///
/// This is no `From<Guard>`: users would make a guard with a token of one that has none.
#[doc(hidden)]
pub trait FromGuard: 'static {
    fn from_guard(guard: AcquiredGuard) -> Self;
}

impl FromGuard for Guard {
    fn from_guard(guard: AcquiredGuard) -> Self {
        guard.0
    }
}

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

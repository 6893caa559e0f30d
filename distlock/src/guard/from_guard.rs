//! How an acquisition makes its own type of guard.

use super::Guard;

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

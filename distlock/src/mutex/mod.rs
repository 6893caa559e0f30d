//! The mutexes of this crate.
//!
//! No [foreign code](crate::foreign) runs under any of them. With the feature `test-util` each of them counts how often the
//! thread has locked one, so that a test fails if the rule is broken. Otherwise they are those of `parking_lot`.

#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
mod counted;

#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
pub(crate) use self::counted::{Mutex, MutexGuard, RwLock, held};
#[cfg(not(all(feature = "test-util", not(all(test, distlock_shuttle)))))]
pub(crate) use crate::sync::{Mutex, MutexGuard, RwLock};

/// The tasks of an explored run share a thread, so none is counted.
#[cfg(all(feature = "test-util", test, distlock_shuttle))]
pub(crate) fn held() -> u32 {
    0
}

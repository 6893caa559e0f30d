//! The mutexes of this crate.
//!
//! No [foreign code](crate::foreign) runs under any of them. With the feature `test-util` each of them counts how often the
//! thread has locked one, so that a test fails if the rule is broken. Otherwise they are those of `parking_lot`.

#[cfg(feature = "test-util")]
mod counted;

#[cfg(feature = "test-util")]
pub(crate) use self::counted::{Mutex, MutexGuard, RwLock, held};
#[cfg(not(feature = "test-util"))]
pub(crate) use crate::sync::{Mutex, MutexGuard, RwLock};

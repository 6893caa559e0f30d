//! The mutexes of this crate. No [foreign code](crate::sync::foreign) runs under any of them.
//!
//! With the feature `test-util` they are wrapped by those of `counted`.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{Mutex, RwLock};
#[cfg(all(test, distlock_shuttle))]
pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use std::sync::PoisonError;
    use std::time::Duration;

    use shuttle::sync;

    /// A mutex that a panic does not poison, as one of `parking_lot`.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Nobody keeps a mutex for as long.
        pub(crate) fn try_lock_for(&self, _time: Duration) -> Option<sync::MutexGuard<'_, T>> {
            Some(self.lock())
        }
    }

    /// A read/write lock that a panic does not poison.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

//! What tasks and threads meet in: atomics, mutexes, wake-ups, channels, tasks, timers, and calls of [foreign code](foreign).
//!
//! Each item is that of the standard library, of `once_cell`, of `parking_lot` or of tokio. The unit tests that are compiled with
//! `--cfg distlock_shuttle` get another one, which lets the explorer `shuttle` decide at each use which task goes on: the folder
//! `test_util/interleavings/` has these tests. An `Arc`, an `OnceLock` and an `OnceBox` stay what they are. So do a semaphore and a
//! channel: tokio's own tests explore those.

#![allow(unused_imports, reason = "not every set of features uses each of them")]

pub(crate) mod atomic;
mod changes;
#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
mod counted;
mod first;
pub(crate) mod foreign;
mod mutex;
mod notify;
pub(crate) mod on_demand;
pub(crate) mod random;
pub(crate) mod runtime;
mod select;
pub(crate) mod table;
pub(crate) mod task;
mod thread_local;
pub(crate) mod time;
mod unordered;
mod waker;

pub(crate) use std::sync::OnceLock;

pub(crate) use once_cell::race::OnceBox;

pub(crate) use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

pub(crate) use self::changes::{Change, Changes};
#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
pub(crate) use self::counted::{Mutex, MutexGuard, RwLock, mutexes_held};
pub(crate) use self::first::first;
#[cfg(not(all(feature = "test-util", not(all(test, distlock_shuttle)))))]
pub(crate) use self::mutex::{Mutex, MutexGuard, RwLock};
pub(crate) use self::notify::Notify;
pub(crate) use self::select::select;
pub(crate) use self::thread_local::thread_local;
pub(crate) use self::unordered::{Unordered, all, try_all};
pub(crate) use self::waker::AtomicWaker;

/// Another task may run here.
#[cfg(all(test, distlock_shuttle))]
pub(crate) fn point() {
    // The explorer decides at each use of one of its own values.
    atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}

/// The tasks of an explored run share a thread, so none is counted.
#[cfg(all(feature = "test-util", test, distlock_shuttle))]
pub(crate) fn mutexes_held() -> u32 {
    0
}

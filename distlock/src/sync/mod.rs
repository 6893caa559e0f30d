//! What tasks and threads meet in: atomics, mutexes, wake-ups, channels, tasks, timers, and calls of [foreign code](foreign).
//!
//! Each item is that of the standard library, of `once_cell`, of `parking_lot` or of tokio. The unit tests that are compiled with
//! `--cfg distlock_shuttle` get another one, which lets the explorer `shuttle` decide at each use which task goes on: the folder
//! `test_util/interleavings/` has these tests. What the explorer replaces is in the folder `explored/`, and the tools that are made of it
//! are beside it. An `Arc`, an `OnceLock` and an `OnceBox` stay what they are. So do a semaphore and a
//! channel: tokio's own tests explore those.

#![allow(unused_imports, reason = "not every set of features uses each of them")]

mod changes;
#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
mod counted;
mod explored;
mod first;
mod flag;
pub(crate) mod foreign;
mod hint;
pub(crate) mod on_demand;
pub(crate) mod table;
mod unordered;

pub(crate) use std::sync::OnceLock;

pub(crate) use once_cell::race::OnceBox;

pub(crate) use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

pub(crate) use self::changes::{Change, Changes};
#[cfg(all(feature = "test-util", not(all(test, distlock_shuttle))))]
pub(crate) use self::counted::{Mutex, MutexGuard, RwLock, mutexes_held};
#[cfg(not(all(feature = "test-util", not(all(test, distlock_shuttle)))))]
pub(crate) use self::explored::mutex::{Mutex, MutexGuard, RwLock};
pub(crate) use self::explored::notify::Notify;
#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::point;
pub(crate) use self::explored::select::select;
pub(crate) use self::explored::thread_local::thread_local;
pub(crate) use self::explored::waker::AtomicWaker;
pub(crate) use self::explored::{atomic, random, runtime, task, time};
pub(crate) use self::first::first;
pub(crate) use self::flag::Flag;
pub(crate) use self::hint::Hint;
pub(crate) use self::unordered::{Unordered, all, try_all};

/// The tasks of an explored run share a thread, so none is counted.
#[cfg(all(feature = "test-util", test, distlock_shuttle))]
pub(crate) fn mutexes_held() -> u32 {
    0
}

//! Values of a thread. Each task of an explored run counts as a thread.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use std::thread_local;

#[cfg(all(test, distlock_shuttle))]
pub(crate) use shuttle::thread_local;

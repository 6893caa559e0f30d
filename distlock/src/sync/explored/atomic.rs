//! Atomics.

/// For a counter of the whole process, which no explored run may share with another one.
pub(crate) use std::sync::atomic::AtomicU64 as StaticU64;
#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

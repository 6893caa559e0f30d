//! What the explorer of interleavings replaces: with `--cfg distlock_shuttle`, each of these is another one in the unit tests.

pub(crate) mod atomic;
pub(crate) mod mutex;
pub(crate) mod notify;
pub(crate) mod random;
pub(crate) mod runtime;
pub(crate) mod select;
pub(crate) mod task;
pub(crate) mod thread_local;
pub(crate) mod time;
pub(crate) mod waker;

/// Another task may run here.
#[cfg(all(test, distlock_shuttle))]
pub(crate) fn point() {
    // The explorer decides at each use of one of its own values.
    atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}

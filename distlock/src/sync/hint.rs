//! A fact that other threads may read a moment late.

use crate::sync::atomic::{AtomicBool, Ordering};

/// A fact that only decides whether a warning is logged, or whether a command asks for a little more.
#[derive(Debug, Default)]
pub(crate) struct Hint(AtomicBool);

impl Hint {
    pub(crate) fn set(&self) {
        // Relaxed, here and below: nothing else is read because of it.
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

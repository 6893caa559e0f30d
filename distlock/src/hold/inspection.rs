//! A look at the waiters of a client, from the watchdog's task.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What is looked at while acquisitions wait.
pub(crate) trait Inspect: fmt::Debug + Send + Sync {
    /// Looks once. Returns whether another look is needed.
    fn inspect(self: Arc<Self>) -> bool;
}

/// Whether a look is wanted, and who looks. It costs nothing while nobody waits.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    inspector: OnceLock<Weak<dyn Inspect>>,
    is_wanted: AtomicBool,
}

impl Inspection {
    pub(super) fn set(&self, inspector: Weak<dyn Inspect>) {
        let _first = self.inspector.set(inspector);
    }

    /// Asks for a look. Returns whether none was asked for yet.
    pub(super) fn want(&self) -> bool {
        // The load keeps the usual case free of a write to memory that all threads share. Release and acquire: the look
        // sees what it was asked for.
        !self.is_wanted.load(Ordering::Acquire) && !self.is_wanted.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    pub(super) fn run(&self) {
        // Before the look: what is asked for meanwhile is not lost.
        self.is_wanted.store(false, Ordering::Release);
        if let Some(inspector) = self.inspector.get().and_then(Weak::upgrade)
            && inspector.inspect()
        {
            self.is_wanted.store(true, Ordering::Release);
        }
    }
}

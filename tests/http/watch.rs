//! Which handlers are inside, by key, as they report it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Counts those inside, and when there were two.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    inside: Mutex<HashMap<u32, usize>>,
    entered: AtomicUsize,
    overlaps: AtomicUsize,
}

/// A handler at work, until it is dropped.
pub(crate) struct Inside {
    watch: Arc<Watch>,
    key: u32,
}

impl Watch {
    pub(crate) fn enter(self: &Arc<Self>, key: u32) -> Inside {
        let mut inside = self.inside.lock();
        let count = inside.entry(key).or_default();
        *count += 1;
        if *count > 1 {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        self.entered.fetch_add(1, Ordering::Relaxed);
        Inside {
            watch: Arc::clone(self),
            key,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.lock().is_empty()
    }

    /// How many handlers have begun.
    pub(crate) fn entered(&self) -> usize {
        self.entered.load(Ordering::Relaxed)
    }

    /// How often one entered where another was.
    pub(crate) fn overlaps(&self) -> usize {
        self.overlaps.load(Ordering::Relaxed)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = self.watch.inside.lock();
        match inside.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(inside.remove(&self.key)),
        }
    }
}

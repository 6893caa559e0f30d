//! What a client has under way to its server, beside the operations that wait.

use super::Operation;
use super::collector::Collector;
use crate::sync::Mutex;

/// What a client has under way to its server, and what waits to go there.
pub(crate) struct Batches {
    collector: Mutex<Collector<Operation>>,
}

/// An operation that is under way alone.
pub(crate) struct Alone<'a>(&'a Batches);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.with(Collector::end_alone);
    }
}

impl Batches {
    /// Without batches, each operation goes alone.
    pub(crate) fn new(has_batches: bool) -> Self {
        Self {
            collector: Mutex::new(Collector::new(has_batches)),
        }
    }

    pub(crate) fn with<T>(&self, with: impl FnOnce(&mut Collector<Operation>) -> T) -> T {
        with(&mut self.collector.lock())
    }

    /// The right to go alone, if nothing is under way.
    pub(crate) fn alone(&self) -> Option<Alone<'_>> {
        self.with(Collector::begin_alone).then(|| Alone(self))
    }

    /// The right to go alone, whatever is under way.
    pub(crate) fn alone_anyway(&self) -> Alone<'_> {
        self.with(Collector::begin_alone_anyway);
        Alone(self)
    }
}

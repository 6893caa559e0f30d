//! What a client has under way to its server, beside the operations that wait.

use super::collector::{Collector, Known};
use super::operation::{BatchKind, Operation};
use crate::sync::Mutex;
use crate::sync::runtime::{Handle, Id};

/// What a client has under way to its server, and what waits to go there.
///
/// Each runtime has a collector of its own. So the sender of a batch runs in the runtime of its callers, and they can wait for it
/// without a timeout: where the sender stands still, its callers do so too, unless their futures were moved to another runtime.
pub(crate) struct Batches {
    kind: BatchKind,
    state: Mutex<State>,
}

struct State {
    collectors: Vec<(Id, Collector<Operation>)>,
    known: Known,
}

/// What one runtime has under way and waiting.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    batches: &'a Batches,
    pub(crate) runtime: Id,
}

/// An operation that is under way alone.
pub(crate) struct Alone<'a>(Here<'a>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.with(Collector::end_alone);
    }
}

impl Batches {
    /// Without batches, each operation goes alone.
    pub(crate) fn new(kind: BatchKind, has_batches: bool) -> Self {
        Self {
            kind,
            state: Mutex::new(State {
                collectors: Vec::new(),
                known: Known::new(has_batches, kind.alone_at_once()),
            }),
        }
    }

    /// From now on, the client collects while anything is under way.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn collect_always(&self) {
        let mut state = self.state.lock();
        state.known = state.known.collecting_always();
    }

    /// What the caller's runtime has under way, if the caller is in a runtime.
    pub(crate) fn here(&self) -> Option<Here<'_>> {
        let runtime = Handle::try_current().ok()?.id();
        Some(self.of(runtime))
    }

    pub(crate) fn of(&self, runtime: Id) -> Here<'_> {
        Here {
            batches: self,
            runtime,
        }
    }
}

impl<'a> Here<'a> {
    pub(crate) fn kind(self) -> BatchKind {
        self.batches.kind
    }

    pub(crate) fn with<T>(self, with: impl FnOnce(&mut Collector<Operation>) -> T) -> T {
        let State { collectors, known } = &mut *self.batches.state.lock();
        let of_here = collectors
            .iter()
            .position(|(runtime, _)| *runtime == self.runtime);
        let at = of_here.unwrap_or_else(|| {
            // Runtimes may have ended.
            collectors.retain(|(_, collector)| !collector.is_idle());
            let collector = Collector::new(*known, self.kind().at_once());
            collectors.push((self.runtime, collector));
            collectors.len() - 1
        });
        let collector = &mut collectors[at].1;
        collector.known = *known;
        let answer = with(collector);
        *known = collector.known;
        answer
    }

    /// The right to go alone, if little is under way.
    pub(crate) fn alone(self) -> Option<Alone<'a>> {
        self.with(Collector::begin_alone).then(|| Alone(self))
    }

    /// The right to go alone, whatever is under way.
    pub(crate) fn alone_anyway(self) -> Alone<'a> {
        self.with(Collector::begin_alone_anyway);
        Alone(self)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    fn goes_alone(batches: &Batches, runtime: Id) -> Option<Alone<'_>> {
        batches.of(runtime).alone()
    }

    #[test]
    fn each_runtime_has_operations_of_its_own_and_those_that_are_idle_are_forgotten() {
        let runtimes = [(); 4].map(|()| Builder::new_current_thread().build().unwrap());
        let [one, two, three, four] = runtimes.each_ref().map(|runtime| runtime.handle().id());
        let batches = Batches::new(BatchKind::Locks, true);
        batches.collect_always();
        let first = goes_alone(&batches, one).expect("nothing is under way");
        assert!(goes_alone(&batches, one).is_none());
        let second = goes_alone(&batches, two).expect("nothing is under way there");
        assert!(goes_alone(&batches, two).is_none());
        drop(second);
        let _third = goes_alone(&batches, three);
        let state = batches.state.lock();
        let known: Vec<Id> = state.collectors.iter().map(|(id, _)| *id).collect();
        drop(state);
        assert_eq!(known, [one, three]);
        drop(first);
        assert!(goes_alone(&batches, one).is_some());
        // What one runtime has learnt of the server, the others know.
        batches.of(one).with(Collector::switch_off);
        let _fourth = goes_alone(&batches, four);
        for runtime in [one, three, four] {
            let both = [(); 2].map(|()| goes_alone(&batches, runtime));
            assert!(both.iter().all(Option::is_some));
        }
    }

    #[test]
    fn caller_without_a_runtime_has_no_collector() {
        assert!(Batches::new(BatchKind::Locks, true).here().is_none());
    }
}

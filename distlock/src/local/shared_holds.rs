//! Which task acquired which holds that others may share: reads and permits.
//!
//! The registry has no entry for such holds, so this is how a wait of the same task finds them. A hold that has ended stays here
//! until the next clean-up, so an end costs nothing.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::waits::Wait;
use super::waits::runner::Runner;
use crate::hold::Hold;
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::session::Watchdog;
use crate::sync::Mutex;

/// How many holds that have ended may stay before a clean-up, beside as many as there were after the last one.
const SPARE: usize = 64;

/// The numbers of the owners of the shared holds that a task has acquired.
type Numbers = SmallVec<[u64; 2]>;

/// The holds that have no entry, by the tasks that acquired them. The watchdog has the holds themselves.
#[derive(Debug, Default)]
pub(super) struct SharedHolds(Mutex<ByRunner>);

/// Plain data.
#[derive(Debug, Default)]
struct ByRunner {
    by_runner: HashMap<Runner, Numbers, RandomState>,
    size: usize,
    /// How many there were after the last clean-up.
    kept: usize,
}

impl SharedHolds {
    /// Records which task acquired a hold, so that a wait of the same task finds it.
    pub(super) fn note(&self, hold: &Hold, watchdog: &Watchdog) {
        if let Some(runner) = Runner::current() {
            let is_held = |number| watchdog.has(number);
            self.0.lock().add(runner, hold.number(), is_held);
        }
    }

    /// A read of this task, or permits of it. An acquisition does not find permits in the scope around it, since they admit
    /// it as any other.
    pub(super) fn hold_of(
        &self,
        runner: Runner,
        resource: &Resource,
        wait: &Wait,
        watchdog: &Watchdog,
    ) -> Option<Arc<Hold>> {
        let family = resource.kind.family();
        if family == Family::Lock {
            return None;
        }
        // Copied, so that the mutex of the watchdog is not locked under this one.
        let numbers = self.0.lock().of(runner);
        let mut held = numbers
            .into_iter()
            .filter_map(|number| watchdog.find(number));
        held.find(|hold| {
            let Resource { kind, key } = &hold.resource;
            let is_around = || wait.inside.iter().any(|(owner, _)| *owner == hold.owner());
            (kind.family(), key) == (family, &resource.key)
                && hold.count() > 0
                && (!hold.in_a_scope.is_set() || is_around())
        })
    }
}

impl ByRunner {
    /// Adds the hold of an owner with this number. `is_held` tells whether an owner still has its hold.
    fn add(&mut self, runner: Runner, number: u64, is_held: impl Fn(u64) -> bool) {
        // Twice as many as were kept, so that the clean-ups cost each hold a constant time.
        if self.size > 2 * self.kept + SPARE {
            self.by_runner.retain(|_, numbers| {
                numbers.retain(|number| is_held(*number));
                !numbers.is_empty()
            });
            self.by_runner.shrink_to(2 * self.by_runner.len());
            self.size = self.by_runner.values().map(SmallVec::len).sum();
            self.kept = self.size;
        }
        self.by_runner.entry(runner).or_default().push(number);
        self.size += 1;
    }

    /// The holds that this task acquired. Some may have ended.
    fn of(&self, runner: Runner) -> Numbers {
        self.by_runner.get(&runner).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn ended_holds_are_cleaned_up_and_those_that_are_held_stay() {
        let one = Runner::Body(thread::current().id());
        let other = Runner::Body(thread::spawn(|| thread::current().id()).join().unwrap());
        let mut holds = ByRunner::default();
        holds.add(one, 0, |_| true);
        for number in 1..1_000 {
            holds.add(other, number, |number| number == 0 || number % 100 == 0);
            assert!(
                holds.size <= 2 * 10 + SPARE + 1,
                "{} at {number}",
                holds.size
            );
        }
        assert_eq!(holds.of(one).as_slice(), [0]);
        assert!(holds.of(other).contains(&900));
        // A task of which nothing is held any more takes no room.
        for number in 1_000..1_200 {
            holds.add(other, number, |number| number != 0);
        }
        assert!(holds.of(one).is_empty() && holds.by_runner.len() == 1);
    }
}

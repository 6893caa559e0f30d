//! Which task acquired which holds that others may share: reads and permits.
//!
//! Plain data. The registry has no entry for such holds, so this is how a wait of the same task finds them. A hold that has
//! ended stays here until the next clean-up, so an end costs nothing.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::waits::runner::Runner;

/// How many holds that have ended may stay before a clean-up, beside as many as there were after the last one.
const SPARE: usize = 64;

/// The numbers of the owners of the shared holds that a task has acquired.
pub(super) type Numbers = SmallVec<[u64; 2]>;

#[derive(Debug, Default)]
pub(super) struct SharedHolds {
    by_runner: HashMap<Runner, Numbers, RandomState>,
    size: usize,
    /// How many there were after the last clean-up.
    kept: usize,
}

impl SharedHolds {
    /// Adds the hold of an owner with this number. `is_held` tells whether an owner still has its hold.
    pub(super) fn add(&mut self, runner: Runner, number: u64, is_held: impl Fn(u64) -> bool) {
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
    pub(super) fn of(&self, runner: Runner) -> Numbers {
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
        let mut holds = SharedHolds::default();
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

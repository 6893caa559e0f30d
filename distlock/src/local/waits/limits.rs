//! The acquisitions of one client that wait, and how many there may be: for each key, and in total.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{LongWait, Wait, Waits};
#[cfg(feature = "testing")]
use crate::backend::ShownWait;
use crate::clock::Tick;
use crate::config::MaxWaiters;
use crate::local::waker::SlotWaker;
use crate::mutex::Mutex;
use crate::resource::key::Key;
use crate::telemetry::CountedWaiter;

/// Counts the waiters of one client.
#[derive(Debug, Default)]
pub(crate) struct WaiterLimits {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    per_key: HashMap<Key, u32, RandomState>,
    total: u32,
    waits: Waits,
}

/// Counts as one waiter of a key until it is dropped.
#[derive(Debug)]
pub(crate) struct WaiterSlot {
    limits: Arc<WaiterLimits>,
    key: Key,
    /// Its number among the waits.
    number: usize,
    counted: Option<CountedWaiter>,
    #[cfg(feature = "testing")]
    shown: Option<Box<dyn ShownWait>>,
}

impl WaiterLimits {
    /// Counts one more waiter. If the key or the client has reached its limit, returns how many wait already. `most` is `None`
    /// for the first in line, if others already wait behind it.
    pub(crate) fn join(
        self: &Arc<Self>,
        wait: Wait,
        most: Option<MaxWaiters>,
    ) -> Result<WaiterSlot, u32> {
        let key = &wait.resources[wait.at].key;
        let mut counts = self.counts.lock();
        if let Some(most) = most {
            let before = counts.per_key.get(key).copied().unwrap_or(0);
            if before >= most.per_key {
                return Err(before);
            }
            if counts.total >= most.total {
                return Err(counts.total);
            }
        }
        let key = key.clone();
        *counts.per_key.entry(key.clone()).or_default() += 1;
        counts.total += 1;
        let number = counts.waits.add(wait);
        Ok(WaiterSlot {
            limits: Arc::clone(self),
            key,
            number,
            counted: None,
            #[cfg(feature = "testing")]
            shown: None,
        })
    }

    /// Copies of all waits.
    pub(crate) fn waits(&self) -> Waits {
        let copies: Vec<Wait> = self.counts.lock().waits.iter().cloned().collect();
        // Outside of the mutex: acquisitions need not wait until the copies are indexed.
        copies.into_iter().collect()
    }

    /// The waits that are to be logged now, and when the next ones are due.
    pub(crate) fn take_due(&self, now: Tick) -> (Vec<LongWait>, Tick) {
        self.counts.lock().waits.take_due(now)
    }

    /// Copies of the waits in which a search for cycles may find a new one; see [`Waits::take_unsearched`].
    pub(crate) fn take_unsearched(&self) -> Option<(Vec<Wait>, usize)> {
        self.counts.lock().waits.take_unsearched()
    }

    /// How many waiters are counted.
    #[cfg(feature = "test-util")]
    pub(crate) fn size(&self) -> usize {
        let counts = self.counts.lock();
        (counts.total as usize)
            .max(counts.per_key.len())
            .max(counts.waits.len())
    }
}

impl Counts {
    fn leave(&mut self, key: &Key) {
        match self.per_key.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.per_key.remove(key)),
        }
        // After a rush of keys the memory goes back. The two bounds are far apart, so that this is rare.
        if self.per_key.capacity() > 64 + 4 * self.per_key.len() {
            self.per_key.shrink_to(2 * self.per_key.len());
        }
    }
}

impl WaiterSlot {
    /// Counts for another key from now on. The limit of that key does not apply, because this waiter was admitted
    /// before.
    pub(crate) fn move_to(&mut self, key: &Key, waker: &Arc<SlotWaker>) {
        let mut counts = self.limits.counts.lock();
        counts.leave(&self.key);
        *counts.per_key.entry(key.clone()).or_default() += 1;
        counts.waits.move_to(self.number, key, waker);
        // Before `shown` is told, which locks the mutex of a memory server.
        drop(counts);
        self.key = key.clone();
        #[cfg(feature = "testing")]
        if let Some(shown) = &self.shown {
            shown.move_to(key);
        }
    }

    /// The waiter is counted in the metrics for as long as it waits.
    pub(crate) fn count(&mut self, counted: CountedWaiter) {
        self.counted = Some(counted);
    }

    /// The server shows this waiter to tests.
    #[cfg(feature = "testing")]
    pub(crate) fn show(&mut self, shown: Option<Box<dyn ShownWait>>) {
        self.shown = shown;
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.total -= 1;
        counts.waits.remove(self.number);
        counts.leave(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use smallvec::smallvec;

    use super::*;
    use crate::resource::key::Resource;
    use crate::resource::kind::Kind;

    const MANY: u32 = u32::MAX;

    fn at_most(per_key: u32, total: u32) -> MaxWaiters {
        MaxWaiters { per_key, total }
    }

    fn key(name: &str) -> Key {
        Key::new("", name).unwrap()
    }

    fn wait(name: &str) -> Wait {
        let kind = Kind::Reentrant;
        let key = key(name);
        Wait {
            resources: smallvec![Resource { kind, key }],
            at: 0,
            since: Tick::default(),
            call_site: Location::caller(),
            inside: Vec::new(),
            due: Tick::NEVER,
            deadline: Tick::NEVER,
            waker: Arc::default(),
        }
    }

    #[test]
    fn one_too_many_of_a_key_or_in_total_is_refused_until_another_leaves() {
        let limits = Arc::new(WaiterLimits::default());
        let first = limits.join(wait("a"), Some(at_most(1, MANY))).unwrap();
        assert_eq!(
            limits.join(wait("a"), Some(at_most(1, MANY))).unwrap_err(),
            1
        );
        let other = limits.join(wait("b"), Some(at_most(1, 2))).unwrap();
        assert_eq!(
            limits.join(wait("c"), Some(at_most(MANY, 2))).unwrap_err(),
            2
        );
        drop(first);
        let again = limits.join(wait("a"), Some(at_most(1, 2))).unwrap();
        drop((other, again));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn waiter_that_moves_to_another_key_or_is_first_is_not_refused() {
        let limits = Arc::new(WaiterLimits::default());
        let mut moving = limits.join(wait("a"), Some(at_most(1, MANY))).unwrap();
        let there = limits.join(wait("b"), Some(at_most(1, MANY))).unwrap();
        moving.move_to(&key("b"), &Arc::default());
        let first = limits.join(wait("b"), None).unwrap();
        assert_eq!(
            limits.join(wait("b"), Some(at_most(3, MANY))).unwrap_err(),
            3
        );
        assert_eq!(limits.join(wait("a"), Some(at_most(1, 3))).unwrap_err(), 3);
        drop((moving, there, first));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn nobody_waits_where_the_limit_is_zero() {
        let limits = Arc::new(WaiterLimits::default());
        assert_eq!(
            limits.join(wait("a"), Some(at_most(0, MANY))).unwrap_err(),
            0
        );
        assert_eq!(
            limits.join(wait("a"), Some(at_most(MANY, 0))).unwrap_err(),
            0
        );
    }
}

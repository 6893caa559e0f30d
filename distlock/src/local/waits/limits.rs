//! The acquisitions of one client that wait, and how many there may be: for each key, and in total.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::{LongWait, Wait, Waits};
#[cfg(feature = "testing")]
use crate::backend::ShownWait;
use crate::clock::Tick;
use crate::config::MaxWaiters;
use crate::local::waker::SlotWaker;
use crate::resource::key::Key;
use crate::sync::{Mutex, table};
use crate::telemetry::CountedWaiter;

/// Counts the waiters of one client.
#[derive(Debug, Default)]
pub(crate) struct WaiterLimits {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// By the name of the key, which takes fewer bytes than the key.
    per_key: HashMap<Arc<str>, u32, RandomState>,
    total: u32,
    waits: Waits,
}

/// Counts as one waiter of a key until it is dropped.
#[derive(Debug)]
pub(crate) struct WaiterSlot {
    limits: Arc<WaiterLimits>,
    /// Its number among the waits, which have its key.
    number: usize,
    counted: Option<CountedWaiter>,
    #[cfg(feature = "testing")]
    shown: Option<Box<dyn ShownWait>>,
}

impl WaiterLimits {
    /// Counts one more waiter. If the key or the client has reached its limit, returns how many wait already. `is_first`:
    /// whether it is the first in line, and others wait behind it. Then the limits do not apply to it.
    pub(crate) fn join(
        self: &Arc<Self>,
        wait: Wait,
        most: MaxWaiters,
        is_first: impl FnOnce() -> bool,
    ) -> Result<WaiterSlot, u32> {
        let mut counts = self.counts.lock();
        if let Err(before) = counts.enter(wait.key(), Some(most)) {
            // Asked only now, and not under this mutex: it takes another one, and nearly all waiters are within the limits.
            drop(counts);
            if !is_first() {
                return Err(before);
            }
            counts = self.counts.lock();
            counts.enter(wait.key(), None)?;
        }
        let number = counts.waits.add(wait);
        Ok(WaiterSlot {
            limits: Arc::clone(self),
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

    /// The waits that are to be logged now, and when to ask for the next ones; see [`Waits::take_due`].
    pub(crate) fn take_due(&self, now: Tick, pause: Duration) -> (Vec<LongWait>, Tick) {
        self.counts.lock().waits.take_due(now, pause)
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
    /// Counts one more waiter of a key, unless there are too many already. Returns how many there are then.
    fn enter(&mut self, key: &Key, most: Option<MaxWaiters>) -> Result<(), u32> {
        let of_key = self.per_key.get_mut(key.name());
        let before = of_key.as_deref().copied().unwrap_or(0);
        if let Some(most) = most {
            if before >= most.per_key {
                return Err(before);
            }
            if self.total >= most.total {
                return Err(self.total);
            }
        }
        match of_key {
            Some(count) => *count += 1,
            None => drop(self.per_key.insert(Arc::clone(key.name()), 1)),
        }
        self.total += 1;
        Ok(())
    }

    fn leave(&mut self, key: &Key) {
        self.total -= 1;
        match self.per_key.get_mut(key.name()) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.per_key.remove(key.name())),
        }
        table::shrink(&mut self.per_key);
    }
}

impl WaiterSlot {
    /// Counts for another key from now on. The limit of that key does not apply, because this waiter was admitted
    /// before.
    pub(crate) fn move_to(&mut self, key: &Key, waker: &Arc<SlotWaker>) {
        let mut counts = self.limits.counts.lock();
        if let Some(former) = counts.waits.move_to(self.number, key, waker) {
            counts.leave(&former);
            // Never refused.
            let _entered = counts.enter(key, None);
        }
        // Before `shown` is told, which locks the mutex of a memory server.
        drop(counts);
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
        let wait = counts.waits.remove(self.number);
        if let Some(wait) = &wait {
            counts.leave(wait.key());
        }
        // The wait is dropped after that: others need not wait for it.
        drop(counts);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

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

    /// A wait for the first of these keys, which needs all of them.
    fn wait(names: &[&str]) -> Wait {
        let kind = Kind::Reentrant;
        let resources = names.iter().map(|name| Resource {
            kind,
            key: key(name),
        });
        Wait {
            resources: resources.collect(),
            at: 0,
            since: Tick::default(),
            call_site: Location::caller(),
            inside: Vec::new(),
            due: Tick::NEVER,
            deadline: Tick::NEVER,
            waker: Arc::default(),
        }
    }

    /// One that is not the first in line.
    fn join(
        limits: &Arc<WaiterLimits>,
        names: &[&str],
        most: MaxWaiters,
    ) -> Result<WaiterSlot, u32> {
        limits.join(wait(names), most, || false)
    }

    #[test]
    fn one_too_many_of_a_key_or_in_total_is_refused_until_another_leaves() {
        let limits = Arc::default();
        let first = join(&limits, &["a"], at_most(1, MANY)).unwrap();
        assert_eq!(join(&limits, &["a"], at_most(1, MANY)).unwrap_err(), 1);
        let other = join(&limits, &["b"], at_most(1, 2)).unwrap();
        assert_eq!(join(&limits, &["c"], at_most(MANY, 2)).unwrap_err(), 2);
        drop(first);
        let again = join(&limits, &["a"], at_most(1, 2)).unwrap();
        drop((other, again));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn waiter_that_moves_to_another_key_or_is_first_is_not_refused() {
        let limits = Arc::default();
        let mut moving = join(&limits, &["a", "b"], at_most(1, MANY)).unwrap();
        let there = join(&limits, &["b"], at_most(1, MANY)).unwrap();
        moving.move_to(&key("b"), &Arc::default());
        let first = limits.join(wait(&["b"]), at_most(1, 1), || true).unwrap();
        assert_eq!(join(&limits, &["b"], at_most(3, MANY)).unwrap_err(), 3);
        assert_eq!(join(&limits, &["a"], at_most(1, 3)).unwrap_err(), 3);
        drop(there);
        // It left the other key for this one.
        assert_eq!(limits.counts.lock().per_key.get(key("b").name()), Some(&2));
        assert_eq!(limits.counts.lock().per_key.get(key("a").name()), None);
        drop((moving, first));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn nobody_waits_where_the_limit_is_zero() {
        let limits = Arc::default();
        assert_eq!(join(&limits, &["a"], at_most(0, MANY)).unwrap_err(), 0);
        assert_eq!(join(&limits, &["a"], at_most(MANY, 0)).unwrap_err(), 0);
    }
}

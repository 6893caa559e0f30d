//! How many acquisitions of one client wait: for each key, and in total.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::config::MaxWaiters;
use crate::key::Key;

/// Counts the waiters of one client.
#[derive(Debug, Default)]
pub(super) struct WaiterLimits {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    per_key: HashMap<Key, u32, RandomState>,
    total: u32,
}

/// Counts as one waiter of a key until it is dropped.
#[derive(Debug)]
pub(crate) struct WaiterSlot {
    limits: Arc<WaiterLimits>,
    key: Key,
}

impl WaiterLimits {
    /// Counts one more waiter. If the key or the client has reached its limit, returns how many wait already.
    pub(super) fn join(self: &Arc<Self>, key: &Key, most: MaxWaiters) -> Result<WaiterSlot, u32> {
        let mut counts = self.counts.lock();
        let before = counts.per_key.get(key).copied().unwrap_or(0);
        if before >= most.per_key {
            return Err(before);
        }
        if counts.total >= most.total {
            return Err(counts.total);
        }
        counts.per_key.insert(key.clone(), before + 1);
        counts.total += 1;
        Ok(WaiterSlot {
            limits: Arc::clone(self),
            key: key.clone(),
        })
    }

    /// As [`join`](WaiterLimits::join), without a limit. It is for the first in line, if others already wait behind it.
    pub(super) fn join_as_first(self: &Arc<Self>, key: &Key) -> WaiterSlot {
        let mut counts = self.counts.lock();
        *counts.per_key.entry(key.clone()).or_default() += 1;
        counts.total += 1;
        WaiterSlot {
            limits: Arc::clone(self),
            key: key.clone(),
        }
    }

    /// How many waiters are counted.
    #[cfg(feature = "test-util")]
    pub(super) fn size(&self) -> usize {
        let counts = self.counts.lock();
        (counts.total as usize).max(counts.per_key.len())
    }
}

impl Counts {
    fn leave(&mut self, key: &Key) {
        match self.per_key.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.per_key.remove(key)),
        }
    }
}

impl WaiterSlot {
    /// Counts for another key from here on. The limit of that key does not apply, because this waiter was admitted
    /// before.
    pub(crate) fn move_to(&mut self, key: &Key) {
        let mut counts = self.limits.counts.lock();
        counts.leave(&self.key);
        *counts.per_key.entry(key.clone()).or_default() += 1;
        self.key = key.clone();
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.total -= 1;
        counts.leave(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = u32::MAX;

    fn at_most(per_key: u32, total: u32) -> MaxWaiters {
        MaxWaiters { per_key, total }
    }

    fn key(name: &str) -> Key {
        Key::new("", name).unwrap()
    }

    #[test]
    fn one_too_many_of_a_key_or_in_total_is_refused_until_another_leaves() {
        let limits = Arc::new(WaiterLimits::default());
        let first = limits.join(&key("a"), at_most(1, MANY)).unwrap();
        assert_eq!(limits.join(&key("a"), at_most(1, MANY)).unwrap_err(), 1);
        let other = limits.join(&key("b"), at_most(1, 2)).unwrap();
        assert_eq!(limits.join(&key("c"), at_most(MANY, 2)).unwrap_err(), 2);
        drop(first);
        let again = limits.join(&key("a"), at_most(1, 2)).unwrap();
        drop((other, again));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn waiter_that_moves_to_another_key_or_is_first_is_not_refused() {
        let limits = Arc::new(WaiterLimits::default());
        let mut moving = limits.join(&key("a"), at_most(1, MANY)).unwrap();
        let there = limits.join(&key("b"), at_most(1, MANY)).unwrap();
        moving.move_to(&key("b"));
        let first = limits.join_as_first(&key("b"));
        assert_eq!(limits.join(&key("b"), at_most(3, MANY)).unwrap_err(), 3);
        assert_eq!(limits.join(&key("a"), at_most(1, 3)).unwrap_err(), 3);
        drop((moving, there, first));
        let counts = limits.counts.lock();
        assert!(counts.total == 0 && counts.per_key.is_empty());
    }

    #[test]
    fn nobody_waits_where_the_limit_is_zero() {
        let limits = Arc::new(WaiterLimits::default());
        assert_eq!(limits.join(&key("a"), at_most(0, MANY)).unwrap_err(), 0);
        assert_eq!(limits.join(&key("a"), at_most(MANY, 0)).unwrap_err(), 0);
    }
}

//! How many acquisitions of one client wait: for each key, and in all.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::key::Key;

/// The waiters of one client, counted.
#[derive(Debug, Default)]
pub(super) struct WaiterLimits {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<Key, u32, RandomState>,
    all: u32,
}

/// Counts as a waiter of a key for as long as it lives.
#[derive(Debug)]
pub(crate) struct WaiterSlot {
    limits: Arc<WaiterLimits>,
    key: Key,
}

impl WaiterLimits {
    /// One more waits, unless so many do already, of the key or in all; then how many those are.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &Key,
        (most, most_in_all): (u32, u32),
    ) -> Result<WaiterSlot, u32> {
        let mut counts = self.counts.lock();
        let before = counts.of.get(key).copied().unwrap_or(0);
        if before >= most {
            return Err(before);
        }
        if counts.all >= most_in_all {
            return Err(counts.all);
        }
        counts.of.insert(key.clone(), before + 1);
        counts.all += 1;
        Ok(WaiterSlot {
            limits: Arc::clone(self),
            key: key.clone(),
        })
    }

    /// As [`join`](Crowd::join), without a bound: for who was first, and let others wait behind it.
    pub(super) fn join_as_first(self: &Arc<Self>, key: &Key) -> WaiterSlot {
        let mut counts = self.counts.lock();
        *counts.of.entry(key.clone()).or_default() += 1;
        counts.all += 1;
        WaiterSlot {
            limits: Arc::clone(self),
            key: key.clone(),
        }
    }

    /// How many wait.
    #[cfg(feature = "test-util")]
    pub(super) fn size(&self) -> usize {
        let counts = self.counts.lock();
        (counts.all as usize).max(counts.of.len())
    }
}

impl Counts {
    fn leave(&mut self, key: &Key) {
        match self.of.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.of.remove(key)),
        }
    }
}

impl WaiterSlot {
    /// Waits for another key from here on, whoever waits there: it has been let in.
    pub(crate) fn go_to(&mut self, key: &Key) {
        let mut counts = self.limits.counts.lock();
        counts.leave(&self.key);
        *counts.of.entry(key.clone()).or_default() += 1;
        self.key = key.clone();
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.all -= 1;
        counts.leave(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = u32::MAX;

    fn key(name: &str) -> Key {
        Key::new("", name).unwrap()
    }

    #[test]
    fn one_too_many_of_a_key_or_in_all_is_refused_until_another_leaves() {
        let limits = Arc::new(WaiterLimits::default());
        let first = limits.join(&key("a"), (1, MANY)).unwrap();
        assert_eq!(limits.join(&key("a"), (1, MANY)).unwrap_err(), 1);
        let other = limits.join(&key("b"), (1, 2)).unwrap();
        assert_eq!(limits.join(&key("c"), (MANY, 2)).unwrap_err(), 2);
        drop(first);
        let again = limits.join(&key("a"), (1, 2)).unwrap();
        drop((other, again));
        let counts = limits.counts.lock();
        assert!(counts.all == 0 && counts.of.is_empty());
    }

    #[test]
    fn who_goes_to_another_key_or_was_first_is_not_refused() {
        let limits = Arc::new(WaiterLimits::default());
        let mut moving = limits.join(&key("a"), (1, MANY)).unwrap();
        let there = limits.join(&key("b"), (1, MANY)).unwrap();
        moving.go_to(&key("b"));
        let first = limits.join_as_first(&key("b"));
        assert_eq!(limits.join(&key("b"), (3, MANY)).unwrap_err(), 3);
        assert_eq!(limits.join(&key("a"), (1, 3)).unwrap_err(), 3);
        drop((moving, there, first));
        let counts = limits.counts.lock();
        assert!(counts.all == 0 && counts.of.is_empty());
    }

    #[test]
    fn nobody_waits_where_none_may() {
        let limits = Arc::new(WaiterLimits::default());
        assert_eq!(limits.join(&key("a"), (0, MANY)).unwrap_err(), 0);
        assert_eq!(limits.join(&key("a"), (MANY, 0)).unwrap_err(), 0);
    }
}

//! The keys that this client released while other processes waited for them. Those processes may go first for a while.
//!
//! An entry of the registry is removed with its last waiter or holder, so it cannot remember this. Without this list, a
//! task that releases and acquires in a loop would win every time: its next attempt arrives before any message does.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::clock::Tick;
use crate::config::YIELD_TIME;

/// The keys to yield, and until when. Plain data: each call drops entries that are out of date.
#[derive(Debug)]
pub(super) struct YieldList<K> {
    until: HashMap<K, Tick>,
    order: VecDeque<(Tick, K)>,
}

impl<K> Default for YieldList<K> {
    fn default() -> Self {
        Self {
            until: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> YieldList<K> {
    /// Other processes may go first for [`YIELD_TIME`].
    pub(super) fn add(&mut self, key: K, now: Tick) {
        self.drop_outdated(now);
        let until = now.after(YIELD_TIME);
        self.until.insert(key.clone(), until);
        self.order.push_back((until, key));
    }

    /// Whether other processes go first for this key. Returns `true` only once.
    pub(super) fn take(&mut self, key: &K, now: Tick) -> bool {
        self.drop_outdated(now);
        self.until.remove(key).is_some()
    }

    fn drop_outdated(&mut self, now: Tick) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((until, key)) = self.order.pop_front()
                && self.until.get(&key) == Some(&until)
            {
                self.until.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_yielded_once_and_only_for_a_while() {
        let mut list = YieldList::default();
        let (start, end) = (Tick::default(), Tick::default().after(YIELD_TIME));
        list.add("a", start);
        assert!(!list.take(&"b", start));
        assert!(list.take(&"a", start) && !list.take(&"a", start));
        list.add("a", start);
        assert!(!list.take(&"a", end));
        assert!(list.until.is_empty() && list.order.is_empty());
    }

    #[test]
    fn key_that_is_added_again_counts_from_then() {
        let mut list = YieldList::default();
        let later = Tick::default().after(YIELD_TIME / 2);
        list.add("a", Tick::default());
        list.add("a", later);
        assert!(list.take(&"a", Tick::default().after(YIELD_TIME)));
    }
}

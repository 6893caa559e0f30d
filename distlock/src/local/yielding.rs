//! The keys that this client released while other processes waited for them, for as long as those may go first.
//!
//! An entry of the registry leaves with its last user, and so cannot remember that. Without it, a task that releases
//! and acquires again in a loop would win every time: it is there before any message is.

use std::collections::{HashMap, VecDeque};

use crate::clock::Tick;
use crate::config::YIELD_TIME;

/// Whose turn it is, by key. Plain data; what is out of date goes with the next call.
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

impl<K: Clone + Eq + std::hash::Hash> YieldList<K> {
    /// It is the turn of others for a while.
    pub(super) fn give(&mut self, key: K, now: Tick) {
        self.forget(now);
        let until = now.after(YIELD_TIME);
        self.until.insert(key.clone(), until);
        self.order.push_back((until, key));
    }

    /// Is it the turn of others? Told once.
    pub(super) fn take(&mut self, key: &K, now: Tick) -> bool {
        self.forget(now);
        self.until.remove(key).is_some()
    }

    fn forget(&mut self, now: Tick) {
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
    fn turn_is_told_once_and_only_for_a_while() {
        let mut yielding = YieldList::default();
        let (start, end) = (Tick::default(), Tick::default().after(YIELD_TIME));
        yielding.give("a", start);
        assert!(!yielding.take(&"b", start));
        assert!(yielding.take(&"a", start) && !yielding.take(&"a", start));
        yielding.give("a", start);
        assert!(!yielding.take(&"a", end));
        assert!(yielding.until.is_empty() && yielding.order.is_empty());
    }

    #[test]
    fn turn_given_again_counts_from_then() {
        let mut yielding = YieldList::default();
        let later = Tick::default().after(YIELD_TIME / 2);
        yielding.give("a", Tick::default());
        yielding.give("a", later);
        assert!(yielding.take(&"a", Tick::default().after(YIELD_TIME)));
    }
}

//! The keys that this client released while other processes waited for them. Those processes may go first for a while.
//!
//! An entry of the registry is removed with its last waiter or holder, so it cannot remember this. Without this list, a
//! task that releases and acquires in a loop would win every time: its next attempt arrives before any message does.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::round_robin::RoundRobin;
use crate::clock::Tick;
use crate::config::{FOREIGN_KNOWN_FOR, OURS_KNOWN_FOR, YIELD_AGAIN_AFTER, YIELD_TIME};
use crate::resource::key::Resource;

/// The keys to yield, those that nobody took after a yield, and what looks have shown of those who take them. Plain data: each call
/// drops entries that are out of date.
#[derive(Debug, Default)]
pub(crate) struct YieldList {
    /// With the other clients that heard of the release.
    to_yield: Until<RoundRobin>,
    in_vain: Until<()>,
    /// A client of this crate had the key.
    ours: Until<()>,
    /// A client of another library had the key.
    foreign: Until<()>,
}

/// Keys, each with a value until a time. Each key is kept for the same time.
#[derive(Debug, Default)]
struct Until<V> {
    until: HashMap<Resource, (Tick, V), RandomState>,
    order: VecDeque<(Tick, Resource)>,
}

impl YieldList {
    /// The other clients that heard of the release may go first for [`YIELD_TIME`].
    pub(crate) fn add(&mut self, key: &Resource, others: RoundRobin, now: Tick) {
        self.to_yield.drop_outdated(now);
        self.to_yield.add(key, others, now.after(YIELD_TIME));
    }

    /// The other clients that may go first for this key. Only the first call for a key returns them.
    pub(crate) fn take(&mut self, key: &Resource, now: Tick) -> Option<RoundRobin> {
        // A rule of tests/model: release_is_remembered_for_who_comes_next.
        // Nearly always: a client that is alone yields nothing.
        if self.to_yield.until.is_empty() {
            return None;
        }
        self.to_yield.drop_outdated(now);
        let taken = self.to_yield.until.remove(key);
        taken.map(|(_, others)| others)
    }

    /// The key was yielded, and nobody took it.
    pub(crate) fn nobody_took(&mut self, key: &Resource, now: Tick) {
        self.in_vain.drop_outdated(now);
        self.in_vain.add(key, (), now.after(YIELD_AGAIN_AFTER));
    }

    /// All who listen have taken the key in turn, so none of them is waited for in vain.
    pub(crate) fn all_take(&mut self, key: &Resource) {
        self.in_vain.until.remove(key);
    }

    /// Whether a waiter that yields waits until somebody takes the key, for longer than clients of this crate need: within
    /// [`YIELD_AGAIN_AFTER`], no yield of the key was in vain.
    pub(crate) fn may_wait_for_foreign(&mut self, key: &Resource, now: Tick) -> bool {
        !self.in_vain.has(key, now)
    }

    /// Notes who was seen with the key. A note that is less than half its time old is not renewed.
    pub(crate) fn saw_taker(&mut self, key: &Resource, is_foreign: bool, now: Tick) {
        let (seen, known_for) = match is_foreign {
            true => (&mut self.foreign, FOREIGN_KNOWN_FOR),
            false => (&mut self.ours, OURS_KNOWN_FOR),
        };
        seen.drop_outdated(now);
        let known_until = seen.until.get(key).map(|(until, ())| *until);
        let is_fresh = known_until.is_some_and(|until| until > now.after(known_for / 2));
        // Not for each time: each is an entry until it is out of date.
        if !is_fresh {
            seen.add(key, (), now.after(known_for));
        }
    }

    /// Whether all who take the key are clients of this crate, as far as recent looks have shown. A yield in vain shows
    /// that some who listen never take it.
    pub(crate) fn takers_are_ours(&mut self, key: &Resource, now: Tick) -> bool {
        self.ours.has(key, now) && !self.foreign.has(key, now) && !self.in_vain.has(key, now)
    }
}

impl<V> Until<V> {
    fn add(&mut self, key: &Resource, value: V, until: Tick) {
        self.until.insert(key.clone(), (until, value));
        self.order.push_back((until, key.clone()));
    }

    fn has(&mut self, key: &Resource, now: Tick) -> bool {
        self.drop_outdated(now);
        self.until.contains_key(key)
    }

    fn drop_outdated(&mut self, now: Tick) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((until, key)) = self.order.pop_front()
                // The key may have been added again, until a later time.
                && self.until.get(&key).is_some_and(|(last, _)| *last == until)
            {
                self.until.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::waits::tests::resource;

    fn a() -> Resource {
        resource("a")
    }

    fn b() -> Resource {
        resource("b")
    }

    fn heard(others: u32) -> RoundRobin {
        RoundRobin::released(others, 1)
    }

    #[test]
    fn key_is_yielded_once_and_only_for_a_while() {
        let mut list = YieldList::default();
        let start = Tick::default();
        let end = Tick::default().after(YIELD_TIME);
        list.add(&a(), heard(2), start);
        assert_eq!(list.take(&b(), start), None);
        assert_eq!(list.take(&a(), start), Some(heard(2)));
        assert_eq!(list.take(&a(), start), None);
        list.add(&a(), heard(2), start);
        assert_eq!(list.take(&a(), end), None);
        assert!(list.to_yield.until.is_empty() && list.to_yield.order.is_empty());
    }

    #[test]
    fn key_that_is_added_again_counts_from_then() {
        let mut list = YieldList::default();
        let later = Tick::default().after(YIELD_TIME / 2);
        list.add(&a(), heard(1), Tick::default());
        list.add(&a(), heard(3), later);
        let taken = list.take(&a(), Tick::default().after(YIELD_TIME));
        assert_eq!(taken, Some(heard(3)));
    }

    #[test]
    fn key_that_was_yielded_in_vain_is_waited_for_again_after_a_while() {
        let mut list = YieldList::default();
        let start = Tick::default();
        list.nobody_took(&a(), start);
        assert!(!list.may_wait_for_foreign(&a(), start) && list.may_wait_for_foreign(&b(), start));
        assert!(list.may_wait_for_foreign(&a(), start.after(YIELD_AGAIN_AFTER)));
        assert!(list.in_vain.until.is_empty() && list.in_vain.order.is_empty());
    }

    #[test]
    fn yield_in_vain_is_forgotten_once_all_who_listen_have_taken_the_key() {
        let mut list = YieldList::default();
        let start = Tick::default();
        list.saw_taker(&a(), false, start);
        list.nobody_took(&a(), start);
        assert!(!list.takers_are_ours(&a(), start) && !list.may_wait_for_foreign(&a(), start));
        list.all_take(&a());
        assert!(list.takers_are_ours(&a(), start) && list.may_wait_for_foreign(&a(), start));
    }

    #[test]
    fn taker_that_is_seen_again_and_again_is_one_entry() {
        let mut list = YieldList::default();
        let start = Tick::default();
        for _ in 0..100 {
            list.saw_taker(&a(), false, start);
            list.saw_taker(&a(), true, start);
        }
        assert_eq!((list.ours.order.len(), list.foreign.order.len()), (1, 1));
        list.foreign = Until::default();
        let later = start.after(OURS_KNOWN_FOR / 2);
        list.saw_taker(&a(), false, later);
        assert!(list.takers_are_ours(&a(), start.after(OURS_KNOWN_FOR)));
    }

    #[test]
    fn key_is_taken_by_ours_until_a_look_is_old_or_another_library_has_taken_it() {
        let mut list = YieldList::default();
        let start = Tick::default();
        assert!(!list.takers_are_ours(&a(), start));
        list.saw_taker(&a(), false, start);
        assert!(list.takers_are_ours(&a(), start) && !list.takers_are_ours(&b(), start));
        assert!(!list.takers_are_ours(&a(), start.after(OURS_KNOWN_FOR)));
        list.saw_taker(&a(), true, start);
        list.saw_taker(&a(), false, start);
        assert!(!list.takers_are_ours(&a(), start));
        let later = start.after(FOREIGN_KNOWN_FOR);
        list.saw_taker(&a(), false, later);
        assert!(list.takers_are_ours(&a(), later));
        list.nobody_took(&a(), later);
        assert!(!list.takers_are_ours(&a(), later));
    }
}

//! Cycles of waits: possible deadlocks among the acquisitions of one client.

use std::collections::{HashMap, HashSet, hash_set};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{Wait, Waits};
use crate::config::CYCLES_SHOWN;
use crate::resource::key::Resource;
use crate::resource::owner::Owner;

impl Waits {
    /// The first cycles of all waits, each once. Of waits that are in several cycles, at least one is found.
    pub(crate) fn cycles(&self, holder_of: impl Fn(&Resource) -> Option<Owner>) -> Vec<Vec<&Wait>> {
        self.new_cycles(0, holder_of)
    }

    /// The first cycles that one of the waits from this number on belongs to. Each of the other cycles was closed by an earlier
    /// wait.
    pub(crate) fn new_cycles(
        &self,
        first_new: usize,
        holder_of: impl Fn(&Resource) -> Option<Owner>,
    ) -> Vec<Vec<&Wait>> {
        let mut search = CycleSearch::new(self, holder_of);
        let mut cycles = Vec::new();
        let mut known = HashSet::new();
        for number in first_new..self.waits.end() {
            let is_inside = |wait: &Wait| !wait.inside.is_empty();
            if !self.waits.get(number).is_some_and(is_inside) || cycles.len() == CYCLES_SHOWN {
                continue;
            }
            search.begin_at(number, &mut |cycle| {
                if cycle.iter().all(|number| *number < first_new) {
                    return true;
                }
                // Waits inside two holds may lead back to both.
                let mut numbers = cycle.to_vec();
                numbers.sort_unstable();
                if known.insert(numbers) {
                    cycles.push(self.numbered(cycle));
                }
                cycles.len() < CYCLES_SHOWN
            });
        }
        cycles
    }

    fn numbered(&self, numbers: &[usize]) -> Vec<&Wait> {
        let waits = numbers.iter();
        waits.filter_map(|number| self.waits.get(*number)).collect()
    }
}

/// A search for cycles, depth first. It follows each wait to the holds that it waits for, and each hold to the waits inside
/// it. It passes each of them once, so its time grows with their number.
struct CycleSearch<'a, F> {
    waits: &'a Waits,
    holder_of: F,
    /// The waits that were reached: their index in `path`, or `None` if all behind them was followed.
    waits_seen: HashMap<usize, Option<usize>, RandomState>,
    /// The holds that were reached: the index in `path` of the wait inside them, or `None` if all behind them was followed.
    holds_seen: HashMap<Owner, Option<usize>, RandomState>,
    /// The waits on the way to the present one, each followed by one that waits inside a hold that it waits for.
    path: Vec<usize>,
    /// What is left to follow from each wait of `path`.
    left: Vec<LeftToFollow<'a>>,
}

#[cfg(test)]
thread_local! {
    /// How many waits and holds were looked at.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What is left to follow from a wait.
struct LeftToFollow<'a> {
    /// The holds that it waits for.
    holds: smallvec::IntoIter<[Owner; 1]>,
    /// The one of them that is followed now, and the waits inside it.
    hold: Option<Owner>,
    inside: Option<hash_set::Iter<'a, usize>>,
}

impl<'a, F: Fn(&Resource) -> Option<Owner>> CycleSearch<'a, F> {
    fn new(waits: &'a Waits, holder_of: F) -> Self {
        Self {
            waits,
            holder_of,
            waits_seen: HashMap::default(),
            holds_seen: HashMap::default(),
            path: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Searches everything that can be reached from a wait and was not searched before. Ends when `found` returns false for
    /// the waits of a cycle.
    fn begin_at(&mut self, first: usize, found: &mut dyn FnMut(&[usize]) -> bool) {
        if !self.waits_seen.contains_key(&first) {
            self.enter(first);
        }
        while let Some(left) = self.left.last_mut() {
            #[cfg(test)]
            STEPS.set(STEPS.get() + 1);
            let seen = if let Some(inside) = left.inside.as_mut().and_then(Iterator::next) {
                let seen = self.waits_seen.get(inside).copied();
                if seen.is_none() {
                    self.enter(*inside);
                }
                seen
            } else {
                if let Some(followed) = left.hold.take() {
                    self.holds_seen.insert(followed, None);
                }
                let Some(owner) = left.holds.next() else {
                    self.leave();
                    continue;
                };
                let seen = self.holds_seen.get(&owner).copied();
                if let (None, Some(inside)) = (seen, self.waits.by_hold.get(&owner)) {
                    self.holds_seen.insert(owner, Some(self.path.len()));
                    (left.hold, left.inside) = (Some(owner), Some(inside.iter()));
                }
                seen
            };
            // It is on the path, which leads from there to here.
            if let Some(Some(at)) = seen
                && !found(&self.path[at..])
            {
                return;
            }
        }
    }

    fn enter(&mut self, number: usize) {
        let wait = self.waits.waits.get(number);
        let resources = wait.into_iter().flat_map(|wait| &wait.resources);
        let holds: SmallVec<[Owner; 1]> = resources.filter_map(&self.holder_of).collect();
        self.waits_seen.insert(number, Some(self.path.len()));
        self.path.push(number);
        self.left.push(LeftToFollow {
            holds: holds.into_iter(),
            hold: None,
            inside: None,
        });
    }

    fn leave(&mut self) {
        self.left.pop();
        if let Some(number) = self.path.pop() {
            self.waits_seen.insert(number, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::local::waits::tests::{resource, wait};

    #[test]
    fn cycle_is_found_by_the_wait_that_closes_it_and_only_then() {
        let owners: Vec<Owner> = (0..3).map(|n| Owner::new(Uuid::nil(), n)).collect();
        let holders = [("a", owners[0]), ("b", owners[1]), ("c", owners[2])];
        let holder_of = |resource: &Resource| {
            let held = holders.iter().find(|(key, _)| *key == resource.key.text());
            held.map(|(_, owner)| *owner)
        };
        let mut waits = Waits::default();
        let first = waits.add(wait("b", Some(owners[0]), 0));
        let second = waits.add(wait("c", Some(owners[1]), 0));
        let beside = waits.add(wait("a", None, 0));
        assert!(waits.cycles(holder_of).is_empty());
        assert!(beside < 3 && waits.new_cycles(0, holder_of).is_empty());
        let third = waits.add(wait("a", Some(owners[2]), 0));
        assert_eq!(waits.new_cycles(third, holder_of)[0].len(), 3);
        // One that leads to a cycle does not belong to it.
        let later = waits.add(wait("a", Some(Owner::new(Uuid::nil(), 9)), 0));
        assert!(waits.new_cycles(later, holder_of).is_empty());
        waits.remove(later);
        let cycles = waits.cycles(holder_of);
        assert!(cycles.len() == 1 && cycles[0].len() == 3, "{cycles:?}");
        waits.remove(second);
        assert!(waits.new_cycles(0, holder_of).is_empty());
        waits.remove(first);
        waits.remove(third);
        assert!(waits.by_hold.is_empty() && waits.len() == 1);
    }

    #[test]
    fn waits_are_searched_once_and_those_that_came_since_with_all_that_they_lead_to() {
        let mut waits = Waits::default();
        assert!(waits.take_unsearched().is_none());
        waits.add(wait("1", Some(owner(0)), 0));
        waits.add(wait("7", None, 0));
        let (searched, new) = waits.take_unsearched().unwrap();
        assert_eq!((searched.len(), new), (1, 1));
        assert!(waits.take_unsearched().is_none());
        // It closes the cycle, and takes the number of one that has ended.
        let ended = waits.add(wait("9", Some(owner(8)), 0));
        waits.remove(ended);
        assert_eq!(waits.add(wait("0", Some(owner(1)), 0)), ended);
        let (searched, new) = waits.take_unsearched().unwrap();
        assert_eq!((searched.len(), new), (2, 1));
        let copies: Waits = searched.into_iter().collect();
        assert_eq!(copies.new_cycles(1, holder_of)[0].len(), 2);
    }

    #[test]
    fn crowd_inside_of_one_hold_leaves_as_fast_as_one_inside_of_many() {
        let time_to_leave = |holds: u64| {
            let mut waits = Waits::default();
            let add = |n| waits.add(wait("a", Some(owner(n % holds)), 0));
            let numbers: Vec<usize> = (0..20_000).map(add).collect();
            let start = std::time::Instant::now();
            for number in numbers.into_iter().rev() {
                waits.remove(number);
            }
            assert!(waits.by_hold.is_empty());
            start.elapsed()
        };
        // The best of several, because a busy machine may stop any one of them.
        let best = |holds| (0..5).map(|_| time_to_leave(holds)).min().unwrap();
        let one = best(1);
        let many = best(20_000);
        // If each of them looked at all others, it would take hundreds of times as long.
        assert!(one < 15 * many, "{one:?} against {many:?}");
    }

    /// The keys of the cycles that a search finds, and its number of steps.
    fn found(
        waits: &Waits,
        holder_of: impl Fn(&Resource) -> Option<Owner>,
    ) -> (Vec<Vec<String>>, usize) {
        let before = STEPS.get();
        let cycles = waits.cycles(holder_of);
        let key = |wait: &&Wait| wait.resources[0].key.text().to_owned();
        let keys = cycles.iter().map(|cycle| {
            let mut keys: Vec<_> = cycle.iter().map(key).collect();
            keys.sort();
            keys
        });
        (keys.collect(), STEPS.get() - before)
    }

    const MANY: u64 = 5_000;

    fn owner(number: u64) -> Owner {
        Owner::new(Uuid::nil(), number)
    }

    /// The hold of the key "7" is that of owner 7.
    fn holder_of(resource: &Resource) -> Option<Owner> {
        resource.key.text().parse().ok().map(owner)
    }

    #[test]
    fn each_of_many_nested_waits_is_looked_at_once() {
        // Inside hold n each waits for the key of hold n + 1: a chain, which the last one closes.
        let mut waits = Waits::default();
        for n in 0..MANY {
            waits.add(wait(&(n + 1).to_string(), Some(owner(n)), 0));
        }
        let few = 4 * MANY as usize;
        let (cycles, steps) = found(&waits, holder_of);
        assert!(cycles.is_empty() && steps <= few, "{steps} steps");
        let last = waits.add(wait("0", Some(owner(MANY)), 0));
        let (cycles, steps) = found(&waits, holder_of);
        assert!(cycles.len() == 1 && steps <= few + 4, "{steps} steps");
        assert_eq!(cycles[0].len(), MANY as usize + 1);
        let new = waits.new_cycles(last, holder_of);
        assert_eq!((new.len(), new[0].len()), (1, MANY as usize + 1));
        // Inside one hold many wait for a key, inside whose hold many wait as well.
        let mut waits = Waits::default();
        for n in 0..MANY {
            waits.add(wait("1", Some(owner(0)), n));
            waits.add(wait("2", Some(owner(1)), n));
        }
        let (cycles, steps) = found(&waits, holder_of);
        assert!(cycles.is_empty() && steps <= 2 * few, "{steps} steps");
    }

    #[test]
    fn all_cycles_are_found_that_share_no_wait_and_at_least_one_of_others() {
        let pair = |one: u64, other: u64| {
            [
                wait(&other.to_string(), Some(owner(one)), 0),
                wait(&one.to_string(), Some(owner(other)), 0),
            ]
        };
        let apart: Waits = (0..5).flat_map(|n| pair(2 * n, 2 * n + 1)).collect();
        let (mut cycles, _) = found(&apart, holder_of);
        cycles.sort();
        let expected = [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]];
        assert_eq!(cycles, expected);
        // Two wait inside the same hold, each for the key of the same other one.
        let shared: Waits = pair(0, 1)
            .into_iter()
            .chain([wait("1", Some(owner(0)), 0)])
            .collect();
        assert_eq!(found(&shared, holder_of).0.len(), 2);
        let many: Waits = (0..MANY).flat_map(|n| pair(2 * n, 2 * n + 1)).collect();
        assert_eq!(found(&many, holder_of).0.len(), CYCLES_SHOWN);
        // One wait inside two holds, both of which the other one waits for.
        let mut both = wait("2", Some(owner(0)), 0);
        both.inside.push((owner(1), resource("1").key));
        let mut multi = wait("0", Some(owner(2)), 0);
        multi.resources.push(resource("1"));
        let twice: Waits = [both, multi].into_iter().collect();
        assert_eq!(found(&twice, holder_of).0, [["0", "2"]]);
    }
}

//! The acquisitions of one client that wait: since when, where in the code, and inside which holds.

pub(super) mod cycles;
pub(super) mod limits;
mod numbered;
pub(super) mod runner;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use self::numbered::Numbered;
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::resource::key::{Key, Resource};
use crate::resource::owner::Owner;
use crate::sync::table;

/// An acquisition that waits.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// All keys that it needs.
    pub(crate) resources: SmallVec<[Resource; 1]>,
    /// The index of the one that it waits for now.
    pub(crate) at: usize,
    pub(crate) since: Tick,
    /// Where in the user's code it was made.
    pub(crate) call_site: &'static Location<'static>,
    /// The holds in whose critical sections it waits.
    pub(crate) inside: Vec<(Owner, Key)>,
    /// When the log next reports that it has waited long.
    pub(crate) due: Tick,
    pub(crate) deadline: Tick,
    /// Finds it in the queue of its key.
    pub(crate) waker: Arc<SlotWaker>,
}

impl Wait {
    /// The key that it waits for now.
    pub(crate) fn key(&self) -> &Key {
        &self.resources[self.at].key
    }
}

/// A key with a long wait.
#[derive(Debug)]
pub(crate) struct LongWait {
    pub(crate) resource: Resource,
    /// Since when the waiter that came first has waited, and where in the code.
    pub(crate) since: Tick,
    pub(crate) call_site: &'static Location<'static>,
    /// How many waiters the line of the log counts.
    pub(crate) waiters: usize,
}

/// All acquisitions that wait. Plain data.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) waits: Numbered<Wait>,
    /// The waits inside the critical section of each hold.
    pub(crate) by_hold: HashMap<Owner, HashSet<usize, RandomState>, RandomState>,
    /// Waits inside of holds that came after the last search for cycles. Some may have ended.
    unsearched: Vec<usize>,
    /// No wait is due before this time.
    next_due: Option<Tick>,
    /// No long wait is logged before this time, also if one is due.
    not_before: Tick,
}

impl Waits {
    /// Adds a wait, and returns its number.
    pub(crate) fn add(&mut self, wait: Wait) -> usize {
        let next_due = self.next_due.get_or_insert(wait.due);
        *next_due = wait.due.min(*next_due);
        if wait.inside.is_empty() {
            return self.waits.add(wait);
        }
        // Numbered first, and indexed by a copy of its holds: the wait is moved into its place.
        let owners: SmallVec<[Owner; 4]> = wait.inside.iter().map(|(owner, _)| *owner).collect();
        let number = self.waits.add(wait);
        self.unsearched.push(number);
        for owner in owners {
            self.by_hold.entry(owner).or_default().insert(number);
        }
        number
    }

    /// Removes a wait, and returns it.
    pub(crate) fn remove(&mut self, number: usize) -> Option<Wait> {
        let wait = self.waits.remove(number)?;
        if wait.inside.is_empty() {
            return Some(wait);
        }
        for (owner, _) in &wait.inside {
            if let Some(inside) = self.by_hold.get_mut(owner) {
                inside.remove(&number);
                // An empty set would stay for as long as the client.
                if inside.is_empty() {
                    self.by_hold.remove(owner);
                }
            }
        }
        table::shrink(&mut self.by_hold);
        Some(wait)
    }

    /// Copies of the waits inside of holds, if some of them came after the last search for cycles. These come last; the number
    /// says how many there are.
    pub(crate) fn take_unsearched(&mut self) -> Option<(Vec<Wait>, usize)> {
        let mut unsearched = std::mem::take(&mut self.unsearched);
        // A number that was used again is here twice.
        unsearched.sort_unstable();
        unsearched.dedup();
        let is_new = |number: &usize| unsearched.binary_search(number).is_ok();
        let inside: HashSet<usize, RandomState> =
            self.by_hold.values().flatten().copied().collect();
        let (new, known): (Vec<usize>, Vec<usize>) = inside.into_iter().partition(is_new);
        let count = new.len();
        let waits = known.into_iter().chain(new);
        let waits = waits.filter_map(|number| self.waits.get(number).cloned());
        (count > 0).then(|| (waits.collect(), count))
    }

    /// It waits for another of its keys from now on, and is in that queue with this waker. Returns the key that it waited for
    /// before; `None` if `key` is none of its keys.
    pub(crate) fn move_to(
        &mut self,
        number: usize,
        key: &Key,
        waker: &Arc<SlotWaker>,
    ) -> Option<Key> {
        let wait = self.waits.get_mut(number)?;
        let mut keys = wait.resources.iter();
        let at = keys.position(|resource| resource.key == *key)?;
        wait.waker = Arc::clone(waker);
        // Before `at` changes, which says what key that is.
        let former = wait.key().clone();
        wait.at = at;
        Some(former)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.waits.iter()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn len(&self) -> usize {
        self.waits.len()
    }

    /// The waits that are to be logged now, one for each key, the longest first; and when to ask for the next ones. All waiters of
    /// a key are counted together, also those that are not due yet. Those that become due within `pause` after this are taken
    /// together.
    pub(crate) fn take_due(&mut self, now: Tick, pause: Duration) -> (Vec<LongWait>, Tick) {
        // Usually nothing is due, and thousands of waits are not looked through.
        let next = self.next_due.unwrap_or(Tick::NEVER).max(self.not_before);
        if next > now {
            return (Vec::new(), next);
        }
        self.not_before = now.after(pause);
        let mut long = HashMap::<Resource, LongWait, RandomState>::default();
        for wait in self.iter().filter(|wait| wait.due <= now) {
            let resource = &wait.resources[wait.at];
            long.entry(resource.clone()).or_insert_with(|| LongWait {
                resource: resource.clone(),
                since: wait.since,
                call_site: wait.call_site,
                waiters: 0,
            });
        }
        // A second time over all of them: a line of the log also counts the waits that are not due.
        for wait in self.iter() {
            if let Some(told) = long.get_mut(&wait.resources[wait.at]) {
                told.waiters += 1;
                if wait.since < told.since {
                    (told.since, told.call_site) = (wait.since, wait.call_site);
                }
            }
        }
        let mut next = Tick::NEVER;
        for wait in self.waits.iter_mut() {
            if let Some(told) = long.get(&wait.resources[wait.at]) {
                // Again when the first of them has waited for twice as long.
                wait.due = now.after(now.since(told.since));
            }
            next = next.min(wait.due);
        }
        self.next_due = Some(next);
        let mut long: Vec<LongWait> = long.into_values().collect();
        long.sort_by_key(|wait| wait.since);
        (long, next.max(self.not_before))
    }
}

impl FromIterator<Wait> for Waits {
    fn from_iter<T: IntoIterator<Item = Wait>>(waits: T) -> Self {
        let mut all = Self::default();
        for wait in waits {
            all.add(wait);
        }
        all
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |keys: &mut dyn Iterator<Item = &Key>| {
            let texts: Vec<String> = keys.map(|key| format!("{:?}", key.text())).collect();
            texts.join(", ")
        };
        let wanted = keys(&mut self.resources.iter().map(|resource| &resource.key));
        let held = keys(&mut self.inside.iter().map(|(_, key)| key));
        write!(f, "{} waits for {wanted} inside {held}", self.call_site)
    }
}

/// A description of a cycle, for the log.
pub(crate) fn describe(cycle: &[&Wait]) -> String {
    let waits: Vec<String> = cycle.iter().map(ToString::to_string).collect();
    waits.join("; ")
}

#[cfg(test)]
pub(super) mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::resource::kind::Kind;

    pub(crate) fn resource(key: &str) -> Resource {
        Resource {
            kind: Kind::Reentrant,
            key: Key::new("", key).unwrap(),
        }
    }

    /// A wait for `key` inside the hold of `owner`.
    pub(crate) fn wait(key: &str, inside: Option<Owner>, since: u64) -> Wait {
        let since = Tick::from_millis(since);
        Wait {
            resources: smallvec![resource(key)],
            at: 0,
            since,
            call_site: Location::caller(),
            inside: inside
                .map(|owner| (owner, resource("held").key))
                .into_iter()
                .collect(),
            due: since.after(Duration::from_millis(30)),
            deadline: Tick::NEVER,
            waker: Arc::default(),
        }
    }

    #[test]
    fn long_waits_are_told_once_for_each_key_and_again_at_growing_intervals() {
        let mut waits = Waits::default();
        waits.add(wait("a", None, 10));
        waits.add(wait("a", None, 0));
        waits.add(wait("b", None, 20));
        let (long, next) = waits.take_due(Tick::from_millis(29), Duration::ZERO);
        assert!(long.is_empty() && next == Tick::from_millis(30));
        let (long, next) = waits.take_due(Tick::from_millis(40), Duration::ZERO);
        assert!(long.len() == 1 && long[0].waiters == 2 && long[0].since == Tick::default());
        assert_eq!(next, Tick::from_millis(50));
        assert_eq!(
            waits
                .take_due(Tick::from_millis(50), Duration::ZERO)
                .0
                .len(),
            1
        );
        let (long, _) = waits.take_due(Tick::from_millis(80), Duration::ZERO);
        assert_eq!(long.iter().map(|wait| wait.waiters).sum::<usize>(), 3);
        assert!(
            waits
                .take_due(Tick::from_millis(139), Duration::ZERO)
                .0
                .is_empty()
        );
    }

    #[test]
    fn all_that_wait_for_a_key_are_told_when_the_first_of_them_is_due() {
        let mut waits = Waits::default();
        waits.add(wait("a", None, 1));
        waits.add(wait("a", None, 0));
        let (long, next) = waits.take_due(Tick::from_millis(30), Duration::ZERO);
        assert_eq!((long.len(), long[0].waiters), (1, 2));
        assert_eq!(next, Tick::from_millis(60));
        assert!(
            waits
                .take_due(Tick::from_millis(31), Duration::ZERO)
                .0
                .is_empty()
        );
    }

    #[test]
    fn waits_for_many_keys_that_become_due_one_after_the_other_are_told_together() {
        let pause = Duration::from_secs(1);
        let mut waits = Waits::default();
        let mut told = HashSet::new();
        let mut times = Vec::new();
        let mut due = Tick::from_millis(30);
        for since in 0..10_000 {
            waits.add(wait(&since.to_string(), None, since));
            let now = Tick::from_millis(since);
            if now >= due {
                let (long, next) = waits.take_due(now, pause);
                told.extend(long.into_iter().map(|wait| wait.resource));
                times.push(now);
                due = next;
            }
        }
        assert_eq!((times.len(), times[0]), (10, Tick::from_millis(30)));
        // All that were due at the last of these times.
        assert_eq!(told.len(), 9_001);
    }
}

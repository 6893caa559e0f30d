//! Which look has read which key last, and what that tells of the holds of the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::console::clock::Millis;
use crate::console::lock::{End, Holder, Lock, PastHold};

/// Times are exact if no more time is between the beginning of a look and the end of the next one that reads the key. It is more if
/// nobody watched, if looks failed or did not read the key, and if they take long.
const EXACT: Millis = 6_000;

/// How many locks are remembered that the last look did not read.
const MOST_UNREAD: usize = 10_000;

/// A look that has found something. The default is a time before all looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookTimes {
    pub(super) began: Millis,
    pub(super) ended: Millis,
}

/// From a look to the next one that read the same key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    last: LookTimes,
    /// The end of the later look.
    pub(super) now: Millis,
}

/// What the last looks have gone to.
#[derive(Debug, Default)]
pub(super) struct Reached {
    last: Option<LookTimes>,
    /// Whether the last look has gone to all keys.
    is_complete: bool,
    /// The locks that the last look did not read, each with the look that did. It did not go to the key, or the key could not be
    /// read.
    unread: BTreeMap<String, (Arc<Lock>, LookTimes)>,
}

/// What is known of a key before a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) lock: &'a Arc<Lock>,
    /// The last look that read the key.
    look: LookTimes,
    /// Whether the last view has it.
    pub(super) is_shown: bool,
}

impl Reached {
    pub(super) fn after(look: LookTimes, is_complete: bool) -> Self {
        Self {
            last: Some(look),
            is_complete,
            unread: BTreeMap::new(),
        }
    }

    /// What is known of a key. `earlier` are the locks that the last look has found.
    pub(super) fn known<'a>(
        &'a self,
        earlier: &'a BTreeMap<String, Arc<Lock>>,
        key: &str,
    ) -> Option<Known<'a>> {
        let shown = earlier.get(key);
        let unread = self.unread.get(key);
        Some(Known {
            lock: shown.or(unread.map(|(lock, _)| lock))?,
            look: unread.map(|(_, look)| *look).or(self.last)?,
            is_shown: shown.is_some(),
        })
    }

    /// What is known of all keys.
    pub(super) fn all<'a>(
        &'a self,
        earlier: &'a BTreeMap<String, Arc<Lock>>,
    ) -> impl Iterator<Item = (&'a String, Known<'a>)> {
        let others = self.unread.keys();
        let others = others.filter(move |key| !earlier.contains_key(*key));
        let keys = earlier.keys().chain(others);
        keys.filter_map(move |key| Some((key, self.known(earlier, key)?)))
    }

    /// The last look that has told which holds the key has, or that it has none.
    fn read_by(&self, known: Option<Known<'_>>) -> Option<LookTimes> {
        match known {
            Some(known) => Some(known.look),
            None => self.last.filter(|_| self.is_complete),
        }
    }

    /// Whether a hold that the look which ends `now` sees for the first time began shortly before.
    pub(super) fn is_exact(&self, known: Option<Known<'_>>, now: Millis) -> bool {
        let last = self.read_by(known);
        last.is_some_and(|last| Interval { last, now }.is_exact())
    }

    /// Whether the last look could not read this key.
    pub(super) fn is_unread(&self, key: &str) -> bool {
        self.unread.contains_key(key)
    }

    /// Remembers a lock that the last look did not read, as it was `before` that look.
    pub(super) fn keep_unread(
        &mut self,
        lock: &Arc<Lock>,
        before: &Self,
        known: Option<Known<'_>>,
    ) {
        let look = before.read_by(known).unwrap_or_default();
        self.unread
            .insert(lock.key.clone(), (Arc::clone(lock), look));
    }

    /// Forgets the locks that were read longest ago, if there are many.
    pub(super) fn trim(&mut self) {
        let excess = self.unread.len().saturating_sub(MOST_UNREAD);
        if excess == 0 {
            return;
        }
        let read = self.unread.iter();
        let mut read: Vec<_> = read
            .map(|(key, (_, look))| (look.ended, key.clone()))
            .collect();
        read.sort_unstable();
        for (_, key) in read.into_iter().take(excess) {
            self.unread.remove(&key);
        }
    }
}

impl Known<'_> {
    pub(super) fn until(self, now: Millis) -> Interval {
        Interval {
            last: self.look,
            now,
        }
    }
}

impl Interval {
    fn is_exact(self) -> bool {
        self.now.saturating_sub(self.last.began) <= EXACT
    }

    /// A hold that the earlier look has seen, and the later one has not.
    pub(super) fn end(self, holder: &Holder, most_waiting: u64) -> PastHold {
        // A released lock stays taken until its lease ends.
        let is_lease_over = holder.lease_ends.is_some_and(|ends| ends <= self.now);
        let end = if holder.is_released || !is_lease_over {
            End::Released
        } else if self.is_exact() {
            End::LeaseRanOut
        } else {
            // The lease may have been renewed between the looks.
            End::Unknown
        };
        PastHold {
            owner: holder.owner.clone(),
            client: holder.client.clone(),
            since: holder.since,
            // A look that takes long may have gone to the key at its beginning.
            last_seen: self.last.began.max(holder.since),
            until: self.now,
            is_exact: self.is_exact() && holder.is_since_exact,
            most_waiting,
            end,
            by: None,
        }
    }
}

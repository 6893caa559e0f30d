//! State machine 9: which keys of old holds are read, and when.
//!
//! Plain data: every method takes the time, and none reads a clock, waits or sends.
//!
//! | a key is | until |
//! | --- | --- |
//! | `Tracked`: the server tells of its next change | it changes, or another of its holds becomes old |
//! | `Due` at a time | the task takes it up then |
//! | `Reading`, and perhaps to be read `again` | the server has answered, or has not |
//!
//! # Invariants
//! 1. A change of a tracked key leads to one read that begins after it: at once if the key has not been read because of a change
//!    for [`TRACK_AGAIN_AFTER`], and when that time is over otherwise.
//! 2. A key is read at most once in that time, apart from its first read. So a key that changes all the time, and two keys that
//!    push each other out of the server's table, cost one read in that time.
//! 3. A key is kept as long as it has a hold that is watched, and not much longer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};

use crate::clock::Tick;
use crate::config::{TRACK_AGAIN_AFTER, TRACK_REFUSED_AGAIN};
use crate::sync::table;

/// How many keys may stay whose holds have gone, beside as many as have one.
const SPARE: usize = 1_000;

pub(super) type Name = Arc<str>;

/// What has come of the read of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Read,
    /// The server does not track now.
    NotAsked,
    /// The server has refused it, for example because the user may not access the key any more.
    Refused,
    NoAnswer,
}

/// The numbers of the owners that have a key. Most keys have one.
pub(super) type Numbers = SmallVec<[u64; 1]>;

/// The keys of old holds.
#[derive(Debug, Default)]
pub(super) struct Plan {
    keys: HashMap<Name, Entry, RandomState>,
    /// The keys that are due, by time. An entry whose key is not due at that time any more is skipped.
    due: BTreeSet<(Tick, Name)>,
    /// How many keys there were after those without holds were removed last.
    kept: usize,
}

#[derive(Debug)]
struct Entry {
    numbers: Numbers,
    state: State,
    /// It is not read before this time because of a change.
    rests_until: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Tracked,
    Due { at: Tick, first: bool },
    Reading { again: bool },
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.keys.contains_key(name)
    }

    /// A hold has become old, which is told once. `is_watched` tells which of the others are still there.
    pub(super) fn add(
        &mut self,
        name: &Name,
        number: u64,
        now: Tick,
        is_watched: impl Fn(u64) -> bool,
    ) {
        let Some(entry) = self.keys.get_mut(name) else {
            let entry = Entry {
                numbers: smallvec![number],
                state: State::Due {
                    at: now,
                    first: true,
                },
                rests_until: Tick::default(),
            };
            self.keys.insert(Arc::clone(name), entry);
            self.due.insert((now, Arc::clone(name)));
            return;
        };
        // From the end, and no further than to one that is there: thousands may get old together. The next read removes the rest.
        while entry
            .numbers
            .last()
            .is_some_and(|other| !is_watched(*other))
        {
            entry.numbers.pop();
        }
        let is_first = entry.numbers.is_empty();
        entry.numbers.push(number);
        if is_first && matches!(entry.state, State::Tracked) {
            entry.rests_until = Tick::default();
            self.due_at(name, now, true);
        } else {
            self.change(name, now);
        }
    }

    /// The server has told that a key has changed. Returns whether the task has to look at the plan.
    pub(super) fn change(&mut self, name: &str, now: Tick) -> bool {
        let Some((name, entry)) = self.keys.get_key_value(name) else {
            return false;
        };
        let at = now.max(entry.rests_until);
        let name = Arc::clone(name);
        self.want(&name, at)
    }

    /// The server has told that all keys may have changed.
    pub(super) fn change_all(&mut self, now: Tick) {
        let names: Vec<Name> = self.keys.keys().map(Arc::clone).collect();
        for name in names {
            self.change(&name, now);
        }
    }

    /// This client may have changed a key that others share: the server does not track it any more then, and does not say so.
    /// Returns whether the task has to look at the plan.
    pub(super) fn wrote(&mut self, name: &str, now: Tick) -> bool {
        let Some((name, _)) = self.keys.get_key_value(name) else {
            return false;
        };
        let name = Arc::clone(name);
        // Not at once: many others may follow.
        self.want(&name, now.after(TRACK_AGAIN_AFTER))
    }

    /// Has a key read at `at`, or as soon as it may be read after that.
    fn want(&mut self, name: &Name, at: Tick) -> bool {
        let Some(entry) = self.keys.get_mut(name) else {
            return false;
        };
        match &mut entry.state {
            State::Reading { again } => {
                *again = true;
                false
            }
            State::Due { at: planned, .. } if *planned <= at => false,
            State::Tracked | State::Due { .. } => {
                self.due_at(name, at, false);
                true
            }
        }
    }

    fn due_at(&mut self, name: &Name, at: Tick, first: bool) {
        if let Some(entry) = self.keys.get_mut(name) {
            entry.state = State::Due { at, first };
            self.due.insert((at, Arc::clone(name)));
        }
    }

    /// When the next key is due.
    pub(super) fn next(&mut self) -> Tick {
        while let Some((at, name)) = self.due.first() {
            if self.is_due_at(name, *at) {
                return *at;
            }
            self.due.pop_first();
        }
        Tick::NEVER
    }

    fn is_due_at(&self, name: &Name, at: Tick) -> bool {
        let entry = self.keys.get(name);
        entry.is_some_and(|entry| matches!(entry.state, State::Due { at: due, .. } if due == at))
    }

    /// Takes the keys that are due, with the owners that have them.
    pub(super) fn take_due(&mut self, now: Tick) -> Vec<(Name, Numbers)> {
        let mut taken = Vec::new();
        while self.next() <= now {
            let Some((_, name)) = self.due.pop_first() else {
                break;
            };
            if let Some(entry) = self.keys.get_mut(&name) {
                let first = matches!(entry.state, State::Due { first: true, .. });
                entry.state = State::Reading { again: false };
                if !first {
                    entry.rests_until = now.after(TRACK_AGAIN_AFTER);
                }
                taken.push((name, entry.numbers.clone()));
            }
        }
        taken
    }

    /// The read of a key has ended. Returns whether the task has to look at the plan.
    pub(super) fn was_read(
        &mut self,
        name: &Name,
        now: Tick,
        outcome: Outcome,
        is_watched: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(entry) = self.keys.get_mut(name) else {
            return false;
        };
        entry.numbers.retain(|number| is_watched(*number));
        if entry.numbers.is_empty() {
            self.keys.remove(name);
            table::shrink(&mut self.keys);
            return false;
        }
        let again = entry.state == (State::Reading { again: true });
        entry.state = State::Tracked;
        let rests_until = entry.rests_until;
        let at = match outcome {
            Outcome::Read if again => now.max(rests_until),
            Outcome::Read => return false,
            Outcome::NoAnswer => now.after(TRACK_AGAIN_AFTER),
            // Nobody renews a hold with a fixed lease, so nothing else would have its key tracked again.
            Outcome::NotAsked | Outcome::Refused => now.after(TRACK_REFUSED_AGAIN),
        };
        self.due_at(name, at, false);
        true
    }

    /// Removes keys whose holds have all gone, if there may be many.
    pub(super) fn tidy(&mut self, is_watched: impl Fn(u64) -> bool) {
        if self.keys.len() <= 2 * self.kept + SPARE {
            return;
        }
        self.keys.retain(|_, entry| {
            // A read comes back to its key.
            matches!(entry.state, State::Reading { .. })
                || entry.numbers.iter().any(|number| is_watched(*number))
        });
        self.kept = self.keys.len();
        table::shrink(&mut self.keys);
        let keys = &self.keys;
        self.due.retain(|(_, name)| keys.contains_key(name));
    }

    /// The reads that were under way will not be answered: the task ended with its runtime.
    pub(super) fn restart(&mut self, now: Tick) {
        let reading = self
            .keys
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Reading { .. }));
        let reading: Vec<Name> = reading.map(|(name, _)| Arc::clone(name)).collect();
        for name in reading {
            self.due_at(&name, now, false);
        }
    }
}

#[cfg(test)]
mod tests;

//! What a server remembers of the owners of permits, so that a request that arrives late or twice changes nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::backend::memory::store::Name;
use crate::clock::Tick;
use crate::resource::key::Key;
use crate::resource::owner::Owner;

/// What is remembered of owners for a while.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The owners that were withdrawn.
    pub(super) ended: Remembered<()>,
    /// The answers to requests that take effect once.
    pub(super) answers: Remembered<i64>,
}

#[cfg(feature = "testing")]
impl Notes {
    /// Forgets what is remembered of one key.
    pub(crate) fn forget(&mut self, key: &str) {
        self.ended.notes.retain(|(name, _), _| **name != *key);
        self.answers.notes.retain(|(name, _), _| **name != *key);
    }
}

/// One note for each owner of a key, until a time.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    notes: HashMap<(Name, Owner), (Tick, T)>,
    /// The notes in the order in which they were written. All of them are kept equally long, so the first ends first.
    order: VecDeque<(Tick, (Name, Owner))>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            notes: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T: Copy> Remembered<T> {
    pub(super) fn get(&self, key: &Key, owner: Owner, now: Tick) -> Option<T> {
        let (until, note) = self.notes.get(&entry(key, owner))?;
        (*until > now).then_some(*note)
    }

    pub(super) fn remove(&mut self, key: &Key, owner: Owner) {
        self.notes.remove(&entry(key, owner));
    }

    pub(super) fn put(&mut self, key: &Key, owner: Owner, note: T, until: Tick, now: Tick) {
        while let Some((end, _)) = self.order.front()
            && *end <= now
        {
            // A note that was written again since has another end, and a second entry later in the order.
            if let Some((end, entry)) = self.order.pop_front()
                && self
                    .notes
                    .get(&entry)
                    .is_some_and(|(until, _)| *until == end)
            {
                self.notes.remove(&entry);
            }
        }
        self.notes.insert(entry(key, owner), (until, note));
        self.order.push_back((until, entry(key, owner)));
    }
}

fn entry(key: &Key, owner: Owner) -> (Name, Owner) {
    (Arc::clone(key.name()), owner)
}

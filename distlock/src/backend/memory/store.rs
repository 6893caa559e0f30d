//! The data of a server in this process: values under keys, each with the time at which it expires.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as Slot;
use std::collections::{BinaryHeap, HashMap};
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::channels::{Channel, Topic};
use super::families::{fair, lock, number, permit, rw, semaphore};
use super::tokens::Tokens;
use crate::backend::{NamedClient, watched};
use crate::clock::{Clock, Tick};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;

/// The name of a key, with its client's prefix.
pub(super) type Name = Arc<str>;

/// What all clients of one server share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) clock: Clock,
    pub(super) state: Mutex<State>,
    /// The number that the next client gets.
    pub(super) clients: AtomicU64,
    #[cfg(feature = "testing")]
    pub(super) faults: super::testing::faults::Faults,
    #[cfg(feature = "testing")]
    pub(super) observed: super::testing::observe::Observed,
}

// A panic leaves nothing half-changed here: no foreign code runs under the mutex.
impl RefUnwindSafe for Store {}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) values: HashMap<Name, Entry, RandomState>,
    pub(super) expiries: Expiries,
    pub(super) channels: HashMap<Topic, Channel, RandomState>,
    pub(super) tokens: Tokens,
    /// The waiters of fair locks, by key. A key without waiters has no entry.
    pub(super) queues: HashMap<Name, fair::Places, RandomState>,
    /// How many latches were opened.
    pub(super) openings: u64,
    /// The clients, in the order in which they were made.
    pub(super) clients: Vec<NamedClient>,
    /// The subscribers to notify once the mutex is released.
    pub(super) published: Vec<watched::Sender>,
}

/// Every key that expires, by its time. What is filed is never moved: a key that was removed, or that has another time by now, is
/// skipped when its time comes. So a lock that is acquired and released costs no search here.
#[derive(Debug, Default)]
pub(super) struct Expiries(BinaryHeap<Reverse<(Tick, Name)>>);

/// How many times of keys that were removed may stay filed. Few bytes, and so many keys come and go for each clean-up.
const SPARE: usize = 64;

impl Expiries {
    fn file(&mut self, name: &Name, expires: Tick) {
        if expires != Tick::NEVER {
            self.0.push(Reverse((expires, Arc::clone(name))));
        }
    }

    /// Takes the next key whose time has come.
    fn take_due(&mut self, now: Tick) -> Option<Name> {
        let Reverse((expires, _)) = self.0.peek()?;
        if *expires > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, name))| name)
    }
}

/// The value under one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    expires: Tick,
}

#[derive(Debug)]
pub(super) enum Value {
    Lock(lock::Held),
    ReadWrite(rw::ReadWrite),
    /// Whether a writer or readers go first at a read/write lock.
    Turn(rw::Turn),
    /// A mark: readers wait for a read/write lock.
    ReadersWait,
    /// The number of a semaphore or a latch.
    Number(i64),
    /// What is remembered of one request to change a number, or of an owner of permits that was withdrawn.
    Mark(number::Mark),
    /// Which opening of a latch was the last one.
    Opened(u64),
    /// The owners that have permits of a semaphore.
    Owners(semaphore::Owners),
    Permits(permit::Permits),
}

#[cfg(feature = "testing")]
impl Value {
    /// Whether it belongs to a primitive under another key.
    pub(super) fn is_beside_a_key(&self) -> bool {
        match self {
            Self::Turn(_)
            | Self::ReadersWait
            | Self::Mark(_)
            | Self::Opened(_)
            | Self::Owners(_) => true,
            Self::Lock(_) | Self::ReadWrite(_) | Self::Number(_) | Self::Permits(_) => false,
        }
    }
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::tokio(),
            state: Mutex::default(),
            clients: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            faults: super::testing::faults::Faults::default(),
            #[cfg(feature = "testing")]
            observed: super::testing::observe::Observed::default(),
        }
    }

    /// Whether no test has taken the server down.
    pub(super) fn is_up(&self) -> bool {
        #[cfg(feature = "testing")]
        return !self.faults.is_down();
        #[cfg(not(feature = "testing"))]
        true
    }
}

impl State {
    /// Removes every value that has expired.
    pub(super) fn sweep(&mut self, now: Tick) {
        while let Some(name) = self.expiries.take_due(now) {
            if self.expiry(&name) <= now {
                self.remove(&name);
            }
        }
        if self.expiries.0.len() > 2 * self.values.len() + SPARE {
            self.file_anew();
        }
    }

    /// Files the present times alone.
    fn file_anew(&mut self) {
        self.expiries = Expiries::default();
        // The table is read as a whole, also the slots that a crowd of keys has left.
        self.values.shrink_to(2 * self.values.len());
        for (name, entry) in &self.values {
            self.expiries.file(name, entry.expires);
        }
    }

    /// Stores a value, in place of the one that was there.
    pub(super) fn insert(&mut self, name: &Name, value: Value, expires: Tick) {
        let entry = Entry { value, expires };
        if self.values.insert(Arc::clone(name), entry).is_some() {
            self.tokens.freed(name);
        }
        self.expiries.file(name, expires);
    }

    /// Stores a value if there is none. Returns the one that is there otherwise.
    pub(super) fn insert_if_free(
        &mut self,
        name: &Name,
        value: Value,
        expires: Tick,
    ) -> Option<&mut Value> {
        match self.values.entry(Arc::clone(name)) {
            Slot::Occupied(there) => Some(&mut there.into_mut().value),
            Slot::Vacant(free) => {
                free.insert(Entry { value, expires });
                self.expiries.file(name, expires);
                None
            }
        }
    }

    /// Removes a value, and answers whether there was one.
    pub(super) fn remove(&mut self, name: &Name) -> bool {
        let was_there = self.values.remove(name).is_some();
        if was_there {
            self.tokens.freed(name);
        }
        was_there
    }

    /// The time until a key expires; `None` when it never expires or does not exist.
    pub(super) fn ttl(&self, name: &Name, now: Tick) -> Option<Duration> {
        let expires = self.values.get(name)?.expires;
        (expires != Tick::NEVER).then(|| expires.left(now))
    }

    /// When a key expires; never if it does not exist.
    pub(super) fn expiry(&self, name: &Name) -> Tick {
        self.values
            .get(name)
            .map_or(Tick::NEVER, |entry| entry.expires)
    }

    /// Changes the time at which a key expires, to an earlier or a later one.
    pub(super) fn expire_at(&mut self, name: &Name, expires: Tick) {
        let Some(entry) = self.values.get_mut(name) else {
            return;
        };
        entry.expires = expires;
        self.expiries.file(name, expires);
    }

    /// Moves the time at which a key expires to a later one, never to an earlier one.
    pub(super) fn expire_at_least(&mut self, name: &Name, expires: Tick) {
        if self
            .values
            .get(name)
            .is_some_and(|entry| entry.expires < expires)
        {
            self.expire_at(name, expires);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    #[test]
    fn value_expires_at_its_present_time_and_not_at_a_former_one() {
        let mut state = State::default();
        let [moved, replaced] = ["moved", "replaced"].map(Name::from);
        for name in [&moved, &replaced] {
            state.insert(name, Value::ReadersWait, at(10));
        }
        state.expire_at(&moved, at(30));
        assert!(state.remove(&replaced));
        let there = state.insert_if_free(&replaced, Value::ReadersWait, at(20));
        assert!(there.is_none());
        let mut swept = |ms| {
            state.sweep(at(ms));
            [&moved, &replaced].map(|name| !state.values.contains_key(name))
        };
        assert_eq!(swept(19), [false, false]);
        assert_eq!(swept(20), [false, true]);
        assert_eq!(swept(30), [true, true]);
    }

    #[test]
    fn times_of_keys_that_were_removed_do_not_pile_up() {
        let mut state = State::default();
        for n in 0..10_000 {
            let name = Name::from(n.to_string());
            state.insert(&name, Value::ReadersWait, at(1_000_000));
            if n >= 10 {
                state.remove(&name);
            }
            state.sweep(at(n));
            assert!(state.expiries.0.len() <= 2 * state.values.len() + SPARE);
        }
        assert_eq!(state.values.len(), 10);
        state.sweep(at(1_000_000));
        assert!(state.values.is_empty());
    }
}

//! The data of a server in this process: values under keys, each with the time at which it expires.

use std::collections::{BTreeSet, HashMap};
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
    /// Every key of `values`, by the time at which it expires.
    pub(super) expiries: BTreeSet<(Tick, Name)>,
    pub(super) channels: HashMap<Topic, Channel, RandomState>,
    pub(super) tokens: Tokens,
    /// What is remembered of owners and requests of expirable semaphores.
    pub(super) notes: permit::Notes,
    /// The waiters of fair locks, by key. A key without waiters has no entry.
    pub(super) queues: HashMap<Name, fair::Places, RandomState>,
    /// How many latches were opened.
    pub(super) openings: u64,
    /// The clients, in the order in which they were made.
    pub(super) clients: Vec<NamedClient>,
    /// The subscribers to notify once the mutex is released.
    pub(super) published: Vec<watched::Sender>,
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
    /// What is remembered of one request to change a number.
    Mark(number::Mark),
    /// Which opening of a latch was the last one.
    Opened(u64),
    /// The owners that have permits of a semaphore.
    Owners(semaphore::Owners),
    Permits(permit::Permits),
}

impl Store {
    /// An empty store with a new clock.
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
        while self
            .expiries
            .first()
            .is_some_and(|(expires, _)| *expires <= now)
        {
            if let Some((_, name)) = self.expiries.pop_first() {
                self.values.remove(&name);
                self.tokens.freed(&name);
            }
        }
    }

    /// Stores a value, in place of the one that was there.
    pub(super) fn insert(&mut self, name: &Name, value: Value, expires: Tick) {
        let entry = Entry { value, expires };
        // Before the new time is noted, which may be the same one.
        if let Some(former) = self.values.insert(Arc::clone(name), entry) {
            self.removed(Arc::clone(name), &former);
        }
        self.expiries.insert((expires, Arc::clone(name)));
    }

    /// Removes a value, and answers whether there was one.
    pub(super) fn remove(&mut self, name: &Name) -> bool {
        let Some((name, entry)) = self.values.remove_entry(name) else {
            return false;
        };
        self.removed(name, &entry);
        true
    }

    /// Forgets what belonged to a value that is not under its key any more.
    fn removed(&mut self, name: Name, entry: &Entry) {
        self.tokens.freed(&name);
        self.expiries.remove(&(entry.expires, name));
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
        self.expiries.remove(&(entry.expires, Arc::clone(name)));
        entry.expires = expires;
        self.expiries.insert((expires, Arc::clone(name)));
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

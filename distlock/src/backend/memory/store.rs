//! Keys with values that expire.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::channels::{Channel, Topic};
use super::{fair, lock, number, permit, rw};
use crate::backend::Signal;

use crate::clock::{Clock, Tick};

pub(super) type Name = Arc<str>;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) clock: Clock,
    pub(super) state: Mutex<State>,
    pub(super) clients: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) values: HashMap<Name, Entry>,
    pub(super) expiries: BTreeSet<(Tick, Name)>,
    pub(super) channels: HashMap<Topic, Channel>,
    /// The last fencing token of each key that ever had one.
    pub(super) tokens: HashMap<Name, u64>,
    pub(super) notes: permit::Notes,
    /// Who waits for each key that has waiters in a queue of the server's.
    pub(super) queues: HashMap<Name, fair::Places>,
    /// Listeners to be woken once the mutex is let go.
    pub(super) news: Vec<watch::Sender<Signal>>,
}

/// What one key holds, and until when.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) expires: Tick,
}

#[derive(Debug)]
pub(super) enum Value {
    Lock(lock::Holders),
    Permits(permit::Permits),
    ReadWrite(rw::ReadWrite),
    /// Whose turn it is at a read/write lock.
    Turn(rw::Turn),
    /// That readers wait for a read/write lock.
    ReadersWait,
    /// Of a semaphore or a latch.
    Number(i64),
    /// Of a request that counts once.
    Mark(number::Mark),
}

impl State {
    pub(super) fn sweep(&mut self, now: Tick) {
        while self
            .expiries
            .first()
            .is_some_and(|(expires, _)| *expires <= now)
        {
            if let Some((_, name)) = self.expiries.pop_first() {
                self.values.remove(&name);
            }
        }
    }

    pub(super) fn insert(&mut self, name: &Name, value: Value, expires: Tick) {
        self.remove(name);
        self.values
            .insert(Arc::clone(name), Entry { value, expires });
        self.expiries.insert((expires, Arc::clone(name)));
    }

    pub(super) fn remove(&mut self, name: &Name) -> bool {
        let Some(entry) = self.values.remove(name) else {
            return false;
        };
        self.expiries.remove(&(entry.expires, Arc::clone(name)));
        true
    }

    /// What is left until a key expires; `None` where it has no end or does not exist.
    pub(super) fn ttl(&self, name: &Name, now: Tick) -> Option<Duration> {
        let expires = self.values.get(name)?.expires;
        (expires != Tick::NEVER).then(|| expires.left(now))
    }

    pub(super) fn expire_at(&mut self, name: &Name, expires: Tick) {
        let Some(entry) = self.values.get_mut(name) else {
            return;
        };
        self.expiries.remove(&(entry.expires, Arc::clone(name)));
        entry.expires = expires;
        self.expiries.insert((expires, Arc::clone(name)));
    }

    /// Moves an expiry away from the present; never towards it.
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

//! What a server tells of a key for a report, whichever primitive lives there, and of the keys that it has.

use std::time::Duration;

use uuid::Uuid;

/// What is under a key, and under the keys that belong to it, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The value under the key itself.
    pub value: ValueSeen,
    /// The time until the key expires; `None` if it does not, or does not exist.
    pub ttl: Option<Duration>,
    /// The live waiters of a fair lock, in order: their owners, and how long each counts as alive.
    pub queue: Listed<(Vec<u8>, Duration)>,
    /// The acquired permits of an expirable semaphore: their ids as text, and what is left of each lease.
    pub permits: Listed<(Vec<u8>, Option<Duration>)>,
    /// How many permits of an expirable semaphore have ended and were not yet taken back.
    pub ended_permits: u64,
    /// The owners that have permits of a plain semaphore, and how many each.
    pub permit_owners: Listed<(Vec<u8>, u64)>,
    /// The last fencing token.
    pub token: Option<u64>,
    /// Who listens, or the right without which the user may not ask.
    pub listeners: Result<Listeners, &'static str>,
}

/// The value under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSeen {
    /// There is none.
    Nothing,
    /// The owners of a lock.
    Lock(Listed<HolderSeen>),
    /// The owners of a read/write lock.
    ReadWrite {
        /// Whether its mode is that of a writer.
        is_written: bool,
        /// The owners.
        holders: Listed<HolderSeen>,
    },
    /// A number.
    Number(i64),
    /// A value that no primitive has.
    Other,
}

/// An owner of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderSeen {
    /// The owner as the server stores it.
    pub owner: Vec<u8>,
    /// How often it has entered the lock.
    pub count: u64,
    /// What is left of its lease; `None` if it has no end.
    pub left: Option<Duration>,
}

/// The first items of a list, and the number of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// At most [`KeyReport::MOST_LISTED`](crate::backend::reports::KeyReport::MOST_LISTED), or a few more.
    pub items: Vec<T>,
    /// The number of all items.
    pub total: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            total: 0,
        }
    }
}

impl<T> Listed<T> {
    /// The first `most` of these items.
    pub(crate) fn first(items: impl ExactSizeIterator<Item = T>, most: usize) -> Self {
        Self {
            total: items.len() as u64,
            items: items.take(most).collect(),
        }
    }
}

/// How many connections listen to each of the channels that a key may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    /// To that of a lock.
    pub lock: u64,
    /// To that of a read/write lock.
    pub read_write: u64,
    /// To that of a semaphore.
    pub semaphore: u64,
    /// To that of a latch.
    pub latch: u64,
}

/// How far a scan has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition {
    /// The servers that were read to their end.
    pub done: Vec<String>,
    /// The server that is being read.
    pub at: Option<ScanCursor>,
}

/// How far a scan of one server has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// The server's address.
    pub server: String,
    /// The number of the connection that has answered.
    pub epoch: u64,
    /// Where the next page begins.
    pub next: String,
}

/// What a scan looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Locks of all kinds.
    Locks,
    /// All numbers. A semaphore and a latch are one, and so is a counter of another program.
    Numbers,
    /// At least the numbers that a semaphore's owners, permits or listeners, or a latch's listeners, show to be one. It
    /// spares a look at each of the others.
    NumbersInUse,
}

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The names of keys, with the client's prefix, each once.
    pub names: Vec<String>,
    /// How many names the server has told, with those that are left out here.
    pub looked_at: u64,
    /// The names that are not UTF-8, with their other bytes as `%FF`. No client of this crate can use such a key.
    pub no_text: Vec<String>,
    /// Where the next page begins; `None` if there is none.
    pub next: Option<ScanPosition>,
}

/// A client that a server knows by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClient {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The address from which it is connected.
    pub address: String,
}

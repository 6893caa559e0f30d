//! For this workspace's own tests: faults, a look inside a client, and the bare verbs of its backend.
//!
//! No part of the public API: it may change in any release.

mod verbs;

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::memory::MemoryServer;
use crate::client::Client;
use crate::guard::Guard;
use crate::owner::Owner;
use crate::primitives::{ExpirablePermit, Permit};

pub use self::verbs::{Answer, Verbs};
pub use crate::backend::{
    Attempt, Attempted, Backend, Change, Fault, Inspected, Released, Renewal, Reply, Signal,
    Subscription, Target, cause,
};
pub use crate::clock::{Clock, Tick};
pub use crate::key::{Key, Resource};
pub use crate::kind::Kind;
pub use crate::permit_id::PermitId;

/// What a client keeps in its maps; all zero when nothing is held, waited for or owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Keys with a local queue or holder.
    pub keys: usize,
    /// Waiters in all queues.
    pub waiters: usize,
    /// Acquisitions that count as waiters, in a queue or not.
    pub waiter_slots: usize,
    /// Holds under the watchdog's eye.
    pub holds: usize,
    /// Releases that nobody has confirmed.
    pub pending_releases: usize,
    /// Channels that are listened to, or still to be left.
    pub channels: usize,
}

/// An owner of the caller's making.
pub fn owner(client: Uuid, number: u64) -> Owner {
    Owner::new(client, number)
}

/// Looks into a client's maps.
pub fn sizes(client: &Client) -> Sizes {
    let registry = client.registry();
    let (keys, waiters) = registry.size();
    Sizes {
        keys,
        waiters,
        waiter_slots: registry.waiter_slots(),
        holds: registry.session.watched(),
        pending_releases: registry.session.pending_releases(),
        channels: registry.session.backend.channels(),
    }
}

/// What the client's own clock shows, and when it shows that the guard's hold is over, or the guard's own lease where
/// that ends before: both since that clock's start. The second may lie in the past.
pub fn held_until(guard: &Guard) -> (Duration, Duration) {
    let (now, until) = guard.held_until();
    let start = Tick::default();
    (now.since(start), until.since(start))
}

/// What a server in this process keeps, without what has expired: keys, and channels that are listened to.
pub fn stored(server: &MemoryServer) -> (usize, usize) {
    server.stored()
}

/// The fencing token of a guard that has one.
pub fn token(guard: &Guard) -> Option<u64> {
    guard.token()
}

/// The guard behind permits, for tests that treat all kinds alike.
pub fn guard_of(permit: impl Into<Permits>) -> Guard {
    match permit.into() {
        Permits::Expirable(permit) => permit.into_guard(),
        Permits::Plain(permit) => permit.into_guard(),
    }
}

/// Permits of either semaphore.
#[derive(Debug)]
pub enum Permits {
    /// Those with leases.
    Expirable(ExpirablePermit),
    /// Those without.
    Plain(Permit),
}

impl From<ExpirablePermit> for Permits {
    fn from(permit: ExpirablePermit) -> Self {
        Self::Expirable(permit)
    }
}

impl From<Permit> for Permits {
    fn from(permit: Permit) -> Self {
        Self::Plain(permit)
    }
}

/// Takes all data of a server in this process away.
pub fn wipe(server: &MemoryServer) {
    server.wipe();
}

/// Takes the last fencing token of a key away, of a server in this process.
pub fn lose_token(server: &MemoryServer, key: &str) {
    server.lose_token(key);
}

/// The locks of a server in this process, with the owners and counts of each.
pub fn locks(server: &MemoryServer) -> BTreeMap<String, BTreeMap<String, u64>> {
    server.locks()
}

/// The last fencing tokens of a server in this process, by key.
pub fn tokens(server: &MemoryServer) -> BTreeMap<String, u64> {
    server.tokens()
}

/// How many wait for a key in the queue of a server in this process: those of fair locks.
pub fn places(server: &MemoryServer, key: &str) -> usize {
    server.places(key)
}

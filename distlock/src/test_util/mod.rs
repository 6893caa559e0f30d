//! For this workspace's own tests: a look inside a client and a server, and the bare verbs of a backend.
//!
//! This module is not part of the public API and may change in any release.

#[cfg(feature = "redis")]
pub mod fuzz;
#[cfg(all(test, distlock_shuttle))]
mod interleavings;
mod verbs;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::memory::MemoryServer;
use crate::client::Client;
use crate::guard::Guard;
use crate::hold::HoldView;
use crate::resource::mode::Mode;
use crate::resource::owner::Owner;
use crate::scope::current::Current;
use crate::sync::task::{AbortHandle, spawn};

pub use self::verbs::{Answer, Verbs};
pub use crate::backend::{
    Attempt, Attempted, AttemptedAll, Backend, Change, ConnectionGap, ConnectionSeen, Connections,
    DetachedOwner, Disconnection, Fault, Forced, Home, Inspected, LatchChange, LatchSeen,
    NamedClient, Peeked, PermitChange, Released, Renewal, Renewed, Reply, Reports, ScanCursor,
    ScanFilter, ScanPosition, Scanned, Seen, SemaphoreChange, Signal, Subscription, Sweep, Target,
    Through, Told, cause, renewed_together, watched,
};
pub use crate::clock::{Clock, Tick};
pub use crate::resource::key::{Key, Resource};
pub use crate::resource::kind::Kind;
pub use crate::resource::permit_id::PermitId;
pub use crate::sync::foreign::{ForeignPanic, is_waking};

/// The sizes of a client's maps. All are zero when the client holds nothing, waits for nothing and has nothing to
/// release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Keys with a local queue or a local holder.
    pub keys: usize,
    /// Waiters in all queues.
    pub waiters: usize,
    /// Acquisitions that count towards the waiter limits, in a queue or not.
    pub waiter_slots: usize,
    /// Holds that the watchdog takes care of.
    pub holds: usize,
    /// Releases that are not confirmed yet.
    pub pending_releases: usize,
    /// Keys that are watched until nobody holds them.
    pub watched_keys: usize,
    /// Channels that are subscribed, or have yet to be unsubscribed.
    pub channels: usize,
}

/// A task that ends when this is dropped: one of tokio, or one whose interleavings are explored.
pub struct KeptTask(AbortHandle);

impl KeptTask {
    /// Begins the task.
    #[must_use]
    pub fn begin(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(spawn(task).abort_handle())
    }
}

impl fmt::Debug for KeptTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptTask")
    }
}

impl Drop for KeptTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes an owner.
pub fn owner(client: Uuid, number: u64) -> Owner {
    Owner::new(client, number)
}

/// Reads the sizes of a client's maps.
pub fn sizes(client: &Client) -> Sizes {
    let registry = client.registry();
    let (keys, waiters) = registry.size();
    Sizes {
        keys,
        waiters,
        waiter_slots: registry.waiter_slots(),
        holds: registry.session.watchdog.len(),
        pending_releases: registry.session.releaser.pending(),
        watched_keys: registry.session.free.len(),
        channels: registry.session.backend.channels(),
    }
}

/// The connections of a client to the servers that have its keys.
pub fn connections(client: &Client) -> Vec<ConnectionSeen> {
    client.registry().session.backend.connections()
}

/// Has a client send attempts and releases of many tasks by one command whenever anything is under way. Otherwise only a busy
/// client does so.
pub fn collect_always(client: &Client) {
    client.registry().session.backend.collect_always();
}

/// The client's own time, and the time at which the guard ends: with its hold, or with its own lease if that is
/// earlier. Both are counted from the start of the client's clock. The second may be in the past.
pub fn held_until(guard: &Guard) -> (Duration, Duration) {
    end_of(&guard.view())
}

/// The same for the guard of the scope that a view is of.
pub fn scope_held_until(current: &Current) -> (Duration, Duration) {
    end_of(current.view())
}

fn end_of(view: &HoldView) -> (Duration, Duration) {
    // By the clock of the first hold's client.
    let now = view.members()[0].now();
    let start = Tick::default();
    (now.since(start), view.deadline().since(start))
}

/// On how many servers the guard of a Redlock is held now, by this process's clock.
pub fn held_parts(guard: &Guard) -> usize {
    let view = guard.view();
    let members = view.members();
    members.iter().filter(|member| member.is_held()).count()
}

/// The number of keys that a server in this process stores, without expired ones, and of its subscribed channels.
pub fn stored(server: &MemoryServer) -> (usize, usize) {
    server.stored()
}

/// Every mode, in the order of the table of the kinds of locks.
pub fn modes() -> impl Iterator<Item = Mode> {
    Mode::ALL.iter().copied()
}

/// Removes the last fencing token of a key from a server in this process.
pub fn lose_token(server: &MemoryServer, key: &str) {
    server.lose_token(key);
}

/// The locks of a server in this process, with the holders and counts of each.
pub fn locks(server: &MemoryServer) -> BTreeMap<String, BTreeMap<String, u64>> {
    server.locks()
}

/// The last fencing tokens that a server in this process keeps, by key.
pub fn tokens(server: &MemoryServer) -> BTreeMap<String, u64> {
    server.tokens()
}

/// The number of waiters for a fair lock in the queue of a server in this process.
pub fn places(server: &MemoryServer, key: &str) -> usize {
    server.places(key)
}

/// The source of a script, by its name among the scripts.
#[cfg(feature = "redis")]
pub fn script(name: &str) -> Option<&'static str> {
    let sources = crate::backend::redis::script::SOURCES;
    let found = sources.iter().find(|(other, _)| *other == name);
    found.map(|(_, source)| *source)
}

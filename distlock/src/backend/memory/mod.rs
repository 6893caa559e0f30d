//! The lock server in this process: the reference for what Redis does, and the embedded default.
//!
//! Pure data under one mutex, with tokio's clock, so that tests may pause time. What has expired goes at the next verb
//! of any client; messages are sent after the mutex was let go.

mod lock;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    Attempted, Backend, Inspected, Released, Renewal, Reply, Signal, Subscription, Target,
};
use crate::clock::{Clock, Tick};
use crate::key::Key;
use crate::kind::Kind;
use crate::owner::Owner;

/// A lock server in this process, for several clients to share.
///
/// [`Client::in_memory`](crate::Client::in_memory) has one of its own. Take this where a test plays several replicas
/// of a program: clients of one server exclude each other as processes on one Redis do. It lives as long as a handle
/// to it or a client of it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, MemoryServer};
///
/// let server = MemoryServer::new();
/// let (one, two) = (Client::builder().in_memory(&server)?, Client::builder().in_memory(&server)?);
/// let _guard = one.lock("order:42").acquire().await?;
/// assert!(two.lock("order:42").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryServer {
    store: Arc<Store>,
}

impl MemoryServer {
    /// A server with nothing locked.
    pub fn new() -> Self {
        Self {
            store: Arc::new(Store {
                clock: Clock::tokio(),
                state: Mutex::new(State::default()),
                clients: AtomicU64::new(0),
            }),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.store.clock.clone()
    }

    /// Keys that are locked, and channels that are listened to.
    #[cfg(feature = "test-util")]
    pub(crate) fn stored(&self) -> (usize, usize) {
        let now = self.store.clock.now();
        let mut state = self.store.state.lock();
        state.sweep(now);
        (state.locks.len(), state.channels.len())
    }

    /// A connection for one client.
    pub(crate) fn connect(&self) -> MemoryBackend {
        MemoryBackend {
            store: Arc::clone(&self.store),
            client: self.store.clients.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.store.state.lock().locks.len();
        f.debug_struct("MemoryServer")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

type Name = Arc<str>;

#[derive(Debug)]
struct Store {
    clock: Clock,
    state: Mutex<State>,
    clients: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<Name, Entry>,
    expiries: BTreeSet<(Tick, Name)>,
    channels: HashMap<Name, Channel>,
}

/// One locked key: what Redis has as a hash with a TTL.
#[derive(Debug)]
struct Entry {
    holders: BTreeMap<Owner, u32>,
    expires: Tick,
}

/// The subscribers of one key, and how many shares each client has.
#[derive(Debug)]
struct Channel {
    signal: watch::Sender<Signal>,
    shares: HashMap<u64, usize>,
}

impl State {
    fn sweep(&mut self, now: Tick) {
        while self
            .expiries
            .first()
            .is_some_and(|(expires, _)| *expires <= now)
        {
            if let Some((_, name)) = self.expiries.pop_first() {
                self.locks.remove(&name);
            }
        }
    }

    fn insert(&mut self, name: &Name, owner: Owner, expires: Tick) {
        let holders = BTreeMap::from([(owner, 1)]);
        self.locks
            .insert(Arc::clone(name), Entry { holders, expires });
        self.expiries.insert((expires, Arc::clone(name)));
    }

    fn remove(&mut self, name: &Name) -> bool {
        let Some(entry) = self.locks.remove(name) else {
            return false;
        };
        self.expiries.remove(&(entry.expires, Arc::clone(name)));
        true
    }

    /// Moves an expiry away from the present; never towards it.
    fn expire_at_least(&mut self, name: &Name, expires: Tick) {
        let Some(entry) = self.locks.get_mut(name) else {
            return;
        };
        if expires > entry.expires {
            self.expiries.remove(&(entry.expires, Arc::clone(name)));
            entry.expires = expires;
            self.expiries.insert((expires, Arc::clone(name)));
        }
    }
}

/// One client's way to a [`MemoryServer`].
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    store: Arc<Store>,
    client: u64,
}

impl MemoryBackend {
    /// Runs a verb on the swept state.
    fn at_now<T>(&self, verb: impl FnOnce(&mut State, Tick) -> T) -> T {
        let now = self.store.clock.now();
        let mut state = self.store.state.lock();
        state.sweep(now);
        verb(&mut state, now)
    }

    /// Tells the subscribers of a key, and answers whether there are any but this client.
    fn publish(&self, name: &Name) -> bool {
        let (signal, others) = {
            let state = self.store.state.lock();
            let Some(channel) = state.channels.get(name) else {
                return false;
            };
            let others = channel.shares.keys().any(|client| *client != self.client);
            (channel.signal.clone(), others)
        };
        signal.send_modify(|signal| signal.news += 1);
        others
    }
}

impl Backend for MemoryBackend {
    fn attempt<'a>(&'a self, target: &'a Target, lease: Duration) -> Reply<'a, Attempted> {
        let attempted = self.at_now(|state, now| match target.kind {
            Kind::Reentrant => lock::attempt(state, target, lease, now),
        });
        Box::pin(ready(Ok(attempted)))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        let ours = self.at_now(|state, now| {
            let one = |renewal: &Renewal| match renewal.target.kind {
                Kind::Reentrant => lock::renew(state, renewal, now),
            };
            batch.iter().map(one).collect()
        });
        Box::pin(ready(Ok(ours)))
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        let freed = self.at_now(|state, _| match target.kind {
            Kind::Reentrant => lock::release(state, target),
        });
        let released = if freed {
            let others_wait = self.publish(target.key.name());
            Released::Freed { others_wait }
        } else {
            Released::NotOurs
        };
        Box::pin(ready(Ok(released)))
    }

    fn force_release<'a>(&'a self, _kind: Kind, key: &'a Key) -> Reply<'a, bool> {
        let freed = self.at_now(|state, _| state.remove(key.name()));
        if freed {
            self.publish(key.name());
        }
        Box::pin(ready(Ok(freed)))
    }

    fn inspect<'a>(&'a self, kind: Kind, key: &'a Key) -> Reply<'a, Inspected> {
        let inspected = self.at_now(|state, now| match kind {
            Kind::Reentrant => lock::inspect(state, key, now),
        });
        Box::pin(ready(Ok(inspected)))
    }

    fn subscribe(&self, _kind: Kind, key: &Key) -> Subscription {
        let mut state = self.store.state.lock();
        let channel = state
            .channels
            .entry(Arc::clone(key.name()))
            .or_insert_with(|| Channel {
                signal: watch::Sender::new(Signal {
                    live: true,
                    news: 0,
                }),
                shares: HashMap::new(),
            });
        *channel.shares.entry(self.client).or_default() += 1;
        let signal = channel.signal.subscribe();
        let share = Share {
            store: Arc::clone(&self.store),
            client: self.client,
            name: Arc::clone(key.name()),
        };
        Subscription::new(signal, share)
    }

    fn epoch(&self) -> u64 {
        0
    }
}

/// One share in a channel; the last one to go takes the channel along.
struct Share {
    store: Arc<Store>,
    client: u64,
    name: Name,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        let Some(channel) = state.channels.get_mut(&self.name) else {
            return;
        };
        if let Some(shares) = channel.shares.get_mut(&self.client) {
            *shares -= 1;
            if *shares == 0 {
                channel.shares.remove(&self.client);
            }
        }
        if channel.shares.is_empty() {
            state.channels.remove(&self.name);
        }
    }
}

//! The lock server in this process: the reference for what Redis does, and the embedded default.
//!
//! Pure data under one mutex, with tokio's clock, so that tests may pause time. What has expired goes at the next verb
//! of any client; messages are sent after the mutex was let go.

mod channels;
mod fair;
mod latch;
mod lock;
mod number;
mod permit;
mod rw;
mod semaphore;
mod store;

#[cfg(feature = "test-util")]
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::channels::{Channel, Share};
#[cfg(feature = "test-util")]
use self::store::{Entry, Name, Value};
use self::store::{State, Store};
use super::{
    Attempt, Attempted, Backend, Change, Fault, Inspected, Released, Renewal, Reply, Signal,
    Subscription, Target, unsupported,
};
use crate::clock::{Clock, Tick};
use crate::config::Config;
use crate::key::Resource;
use crate::kind::{Family, Line};

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
        (
            state.values.len() + state.queues.len(),
            state.channels.len(),
        )
    }

    /// How many wait for a key in the server's own queue.
    #[cfg(feature = "test-util")]
    pub(crate) fn places(&self, key: &str) -> usize {
        let state = self.store.state.lock();
        state.queues.get(key).map_or(0, fair::Places::len)
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn lose_token(&self, key: &str) {
        self.store.state.lock().tokens.remove(key);
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn tokens(&self) -> BTreeMap<String, u64> {
        let state = self.store.state.lock();
        let text = |(key, token): (&Name, &u64)| (key.to_string(), *token);
        state.tokens.iter().map(text).collect()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn locks(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let now = self.store.clock.now();
        let mut state = self.store.state.lock();
        state.sweep(now);
        let lock = |(key, entry): (&Name, &Entry)| match &entry.value {
            Value::Lock(holders) => Some((key.to_string(), lock::shown(holders))),
            _ => None,
        };
        state.values.iter().filter_map(lock).collect()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn wipe(&self) {
        let mut state = self.store.state.lock();
        let channels = std::mem::take(&mut state.channels);
        *state = State {
            channels,
            ..State::default()
        };
    }

    /// A connection for one client.
    pub(crate) fn connect(&self, config: &Config) -> MemoryBackend {
        MemoryBackend {
            store: Arc::clone(&self.store),
            remembered: config.remembered(),
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
        let keys = self.store.state.lock().values.len();
        f.debug_struct("MemoryServer")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

/// One client's way to a [`MemoryServer`].
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    store: Arc<Store>,
    /// How long a request that counts once is remembered.
    remembered: Duration,
    client: u64,
}

impl MemoryBackend {
    /// Runs a verb on the swept state, and then wakes whom it told.
    fn at_now<'a, T: Send + 'a>(
        &self,
        verb: impl FnOnce(&mut State, Tick) -> Result<T, Fault>,
    ) -> Reply<'a, T> {
        let now = self.store.clock.now();
        let (answer, news) = {
            let mut state = self.store.state.lock();
            state.sweep(now);
            let answer = verb(&mut state, now);
            (answer, std::mem::take(&mut state.news))
        };
        for listeners in news {
            listeners.send_modify(|signal| signal.version += 1);
        }
        Box::pin(ready(answer))
    }
}

impl Backend for MemoryBackend {
    fn attempt<'a>(&'a self, attempt: &'a Attempt) -> Reply<'a, Attempted> {
        self.at_now(|state, now| match attempt.target.resource.kind.family() {
            _ if attempt.target.resource.kind.is_fair() => {
                fair::attempt(state, attempt, self.client, now)
            }
            Family::Lock => lock::attempt(state, attempt, now),
            Family::Permit => permit::attempt(state, attempt, (now, self.client)),
            Family::ReadWrite => rw::attempt(state, attempt, (self.client, now)),
            Family::Semaphore => semaphore::attempt(state, attempt, now),
            Family::Latch => Err(unsupported(attempt.target.resource.kind, "be held")),
        })
    }

    fn attempt_all<'a>(&'a self, attempts: &'a [Attempt]) -> Reply<'a, (usize, Attempted)> {
        self.at_now(|state, now| lock::attempt_all(state, attempts, now))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> Reply<'a, Vec<bool>> {
        self.at_now(|state, now| {
            let one = |renewal: &Renewal| match renewal.target.resource.kind.family() {
                Family::Lock => Ok(lock::renew(state, renewal, now)),
                Family::Permit => Ok(permit::renew(state, renewal, now)),
                Family::ReadWrite => Ok(rw::renew(state, renewal, now)),
                Family::Semaphore | Family::Latch => {
                    Err(unsupported(renewal.target.resource.kind, "renew"))
                }
            };
            batch.iter().map(one).collect()
        })
    }

    fn release<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        self.at_now(|state, now| match target.resource.kind.family() {
            _ if target.resource.kind.is_fair() => fair::release(state, target, self.client, now),
            Family::Lock => lock::release(state, target, (self.client, now)),
            Family::Permit => permit::release(state, target, (now, self.client)),
            Family::ReadWrite => rw::release(state, target, (self.client, now)),
            Family::Semaphore => {
                semaphore::release(state, target, self.client, now.after(self.remembered))
            }
            Family::Latch => Err(unsupported(target.resource.kind, "be released")),
        })
    }

    fn release_all<'a>(&'a self, targets: &'a [Target]) -> Reply<'a, Vec<Released>> {
        self.at_now(|state, now| lock::release_all(state, targets, (self.client, now)))
    }

    fn withdraw<'a>(&'a self, target: &'a Target) -> Reply<'a, Released> {
        match target.resource.kind.family() {
            Family::Permit => {
                self.at_now(|state, now| permit::withdraw(state, target, (now, self.client)))
            }
            _ => self.release(target),
        }
    }

    fn force_release<'a>(&'a self, resource: &'a Resource) -> Reply<'a, bool> {
        let Resource { kind, key } = resource;
        self.at_now(|state, now| match kind.family() {
            _ if kind.is_fair() => fair::force_release(state, key, self.client, now),
            Family::Lock => lock::force_release(state, key, self.client),
            Family::Permit => permit::delete(state, key),
            Family::ReadWrite => rw::force_release(state, resource, (self.client, now)),
            Family::Semaphore => number::delete(state, key),
            Family::Latch => latch::delete(state, key, self.client),
        })
    }

    fn inspect<'a>(&'a self, resource: &'a Resource) -> Reply<'a, Inspected> {
        let Resource { kind, key } = resource;
        self.at_now(|state, now| match kind.family() {
            Family::Lock => lock::inspect(state, key, now),
            Family::Permit => permit::inspect(state, key, now),
            Family::ReadWrite => rw::inspect(state, resource, now),
            Family::Semaphore | Family::Latch => number::inspect(state, key, now),
        })
    }

    fn adjust<'a>(&'a self, target: &'a Target, change: Change) -> Reply<'a, i64> {
        self.at_now(|state, now| {
            let until = now.after(self.remembered);
            match target.resource.kind.family() {
                Family::Permit => permit::adjust(state, target, change, (now, self.client)),
                Family::Semaphore => semaphore::adjust(state, target, change, self.client, until),
                Family::Latch => latch::adjust(state, target, change, self.client, until),
                Family::Lock | Family::ReadWrite => Err(unsupported(target.resource.kind, "count")),
            }
        })
    }

    fn subscribe(&self, target: &Target) -> Subscription {
        let own = (target.resource.kind.line() == Line::Server).then_some(target.owner);
        let topic = (
            target.resource.kind.family(),
            Arc::clone(target.resource.key.name()),
            own,
        );
        let mut state = self.store.state.lock();
        let channel = state
            .channels
            .entry(topic.clone())
            .or_insert_with(|| Channel {
                signal: watch::Sender::new(Signal {
                    active: true,
                    version: 0,
                }),
                shares: HashMap::new(),
            });
        *channel.shares.entry(self.client).or_default() += 1;
        let signal = channel.signal.subscribe();
        let share = Share {
            store: Arc::clone(&self.store),
            client: self.client,
            topic,
        };
        Subscription::new(signal, share)
    }

    fn epoch(&self) -> u64 {
        0
    }
}

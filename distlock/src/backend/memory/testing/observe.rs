//! What a test can see of a server in this process: what is locked, who waits, and when that changes.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use uuid::Uuid;

use crate::backend::memory::families::{lock, permit, rw, semaphore};
use crate::backend::memory::server::MemoryServer;
use crate::backend::memory::store::{State, Store, Value};
use crate::backend::{Inspected, ShownWait};
use crate::clock::Tick;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Holder;
use crate::sync::watch;
use crate::sync::{Mutex, foreign};

/// An acquisition that waits at a [`MemoryServer`]; listed by [`MemoryServer::waiters`].
///
/// # Examples
/// See [`MemoryServer::waiters`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The [id](crate::Client::id) of its client.
    pub client_id: Uuid,
    /// Where in the code the acquisition was made. `None` for those that wait for a
    /// [`CountDownLatch`](crate::CountDownLatch), and for the candidates of a [`Leader`](crate::Leader).
    pub call_site: Option<&'static Location<'static>>,
}

/// The acquisitions that wait, and a signal for those who look at the server.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    waits: Mutex<Waits>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Waits {
    last_number: u64,
    /// In the order in which they began, with the name of the key that each waits for.
    waits: BTreeMap<u64, (String, Waiter)>,
}

impl Observed {
    /// Something may have changed. It is called outside of all mutexes, because it wakes.
    pub(crate) fn changed(&self) {
        foreign::send_modify(&self.changes, |()| ());
    }
}

/// One acquisition that waits, until it is dropped.
#[derive(Debug)]
struct Shown {
    store: Arc<Store>,
    number: u64,
}

/// Shows that an acquisition of this client waits for a key.
pub(crate) fn show(store: &Arc<Store>, key: &Key, waiter: Waiter) -> Box<dyn ShownWait> {
    let number = {
        let mut waits = store.observed.waits.lock();
        waits.last_number += 1;
        let number = waits.last_number;
        waits.waits.insert(number, (key.name().to_string(), waiter));
        number
    };
    store.observed.changed();
    Box::new(Shown {
        store: Arc::clone(store),
        number,
    })
}

impl ShownWait for Shown {
    fn move_to(&self, key: &Key) {
        let observed = &self.store.observed;
        if let Some((name, _)) = observed.waits.lock().waits.get_mut(&self.number) {
            *name = key.name().to_string();
        }
        observed.changed();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let observed = &self.store.observed;
        observed.waits.lock().waits.remove(&self.number);
        observed.changed();
    }
}

impl MemoryServer {
    /// Returns the keys that are locked, in alphabetical order. For tests.
    ///
    /// These are the keys of locks and read/write locks that somebody holds, and of semaphores of which permits are
    /// acquired. They are the names in the server, which begin with the client's
    /// [prefix](crate::Builder::key_prefix) if there is one. No command is sent: the answer comes also from a server that
    /// is [down](MemoryServer::take_down).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let _guard = client.multi_lock(["stock:7", "order:42"]).acquire().await?;
    /// assert_eq!(server.locked_keys(), ["order:42", "stock:7"]);
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn locked_keys(&self) -> Vec<String> {
        let names: Vec<String> = {
            let state = self.store.state.lock();
            let names = state.values.iter().filter_map(|(name, entry)| {
                let name = match &entry.value {
                    Value::Lock(_) | Value::ReadWrite(_) | Value::Permits(_) => name,
                    Value::Owners(_) => semaphore::key_of_owners(name)?,
                    _ => return None,
                };
                Some(name.to_owned())
            });
            names.collect()
            // Collected first: each look locks the same mutex.
        };
        let mut locked: Vec<String> = names
            .into_iter()
            .filter(|name| !self.look(name).holders.is_empty())
            .collect();
        locked.sort_unstable();
        locked
    }

    /// Returns who holds a key: the owners of a lock, of a read/write lock, or of a plain semaphore's permits, and the ids
    /// of an expirable semaphore's permits. For tests.
    ///
    /// `key` is the name in the server, see [`locked_keys`](MemoryServer::locked_keys). No command is sent.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let guard = client.lock("order:42").acquire().await?;
    /// assert_eq!(server.holders("order:42")[0].owner, guard.owner().to_string());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn holders(&self, key: &str) -> Vec<Holder> {
        let holders = self.look(key).holders.into_iter();
        let named = holders.map(|(owner, count)| Holder {
            owner: String::from_utf8_lossy(&owner).into_owned(),
            count,
        });
        named.collect()
    }

    /// Returns the acquisitions that wait for a key, of all clients, the one that has waited for the longest first. For
    /// tests.
    ///
    /// Waits for a [`CountDownLatch`](crate::CountDownLatch) and those of [`until_free`](crate::Lock::until_free) count as well. So
    /// does a candidate of a [`Leader`](crate::Leader) while another one leads. `key` is the name in the server,
    /// see [`locked_keys`](MemoryServer::locked_keys). No command is sent.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let waiting = client.lock("order:42").acquire();
    /// let _task = tokio::spawn(async move { waiting.await });
    /// server.until_waiting("order:42", 1).await;
    /// assert_eq!(server.waiters("order:42")[0].client_id, client.id());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn waiters(&self, key: &str) -> Vec<Waiter> {
        let waits = self.store.observed.waits.lock();
        let of_key = waits.waits.values().filter(|(name, _)| name == key);
        of_key.map(|(_, waiter)| waiter.clone()).collect()
    }

    /// Waits until somebody holds a key. For tests, in place of a sleep.
    ///
    /// `key` is the name in the server, see [`locked_keys`](MemoryServer::locked_keys). It waits as long as it takes: put a
    /// [`timeout`](tokio::time::timeout) around the test.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// let work = client.lock("order:42").acquire().run(std::future::pending::<()>());
    /// let _task = tokio::spawn(work);
    /// server.until_locked("order:42").await;
    /// assert!(client.lock("order:42").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn until_locked(&self, key: &str) {
        // Before the first look, so that no change after it is missed.
        let mut changes = self.store.observed.changes.subscribe();
        while self.look(key).holders.is_empty() {
            next(&mut changes).await;
        }
    }

    /// Waits until nobody holds a key: it was released, or its lease is over. For tests, in place of a sleep.
    ///
    /// With paused time, tokio advances its clock to the end of a lease if nothing else happens.
    ///
    /// `key` is the name in the server, see [`locked_keys`](MemoryServer::locked_keys). It waits as long as it takes: put a
    /// [`timeout`](tokio::time::timeout) around the test.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let client = Client::builder().in_memory(&server)?;
    /// drop(client.lock("order:42").acquire().await?); // released in the background
    /// server.until_free("order:42").await;
    /// assert!(server.locked_keys().is_empty());
    /// # Ok(()) }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn until_free(&self, key: &str) {
        let mut changes = self.store.observed.changes.subscribe();
        loop {
            let Inspected { holders, ttl } = self.look(key);
            if holders.is_empty() {
                return;
            }
            // Nothing happens in the server when a lease ends.
            let clock = &self.store.clock;
            let end = ttl.map_or(Tick::NEVER, |left| clock.now().after(left));
            crate::sync::select! {
                () = next(&mut changes) => {}
                () = clock.sleep_until(end) => {}
            }
        }
    }

    /// Waits until at least this number of acquisitions wait for a key. For tests, in place of a sleep.
    ///
    /// It counts as [`waiters`](MemoryServer::waiters) does. An acquisition waits from the moment when it was refused, or
    /// stands in line behind others, so a key that is released then is granted to the first of them. It waits as long as it
    /// takes: put a [`timeout`](tokio::time::timeout) around the test.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`waiters`](MemoryServer::waiters).
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub async fn until_waiting(&self, key: &str, waiters: usize) {
        let mut changes = self.store.observed.changes.subscribe();
        while self.waiters(key).len() < waiters {
            next(&mut changes).await;
        }
    }

    /// Who holds a key, whatever it is.
    fn look(&self, key: &str) -> Inspected {
        let now = self.store.clock.now();
        // A key that cannot be one is not locked.
        let Ok(key) = Key::new("", key) else {
            return Inspected::default();
        };
        let mut state = self.store.state.lock();
        state.sweep(now);
        state.holders_of(&key, now)
    }
}

/// Completes with the next change, of which there may have been one since the last call.
async fn next(changes: &mut watch::Receiver<()>) {
    // The sender is a field of the server, which the caller borrows.
    let _open = changes.changed().await;
}

impl State {
    fn holders_of(&mut self, key: &Key, now: Tick) -> Inspected {
        let inspected = match self.values.get(key.name()).map(|entry| &entry.value) {
            Some(Value::Lock(_)) => lock::inspect(self, key, now),
            Some(Value::Permits(_)) => permit::inspect(self, key, now),
            Some(Value::ReadWrite(_)) => {
                let of = |state: &mut Self, kind| {
                    let key = key.clone();
                    rw::inspect(state, &Resource { kind, key }, now)
                };
                match (of(self, Kind::Write), of(self, Kind::Read)) {
                    (Ok(writer), Ok(readers)) => Ok(Inspected {
                        holders: [writer.holders, readers.holders].concat(),
                        ttl: writer.ttl.or(readers.ttl),
                    }),
                    (writer, readers) => writer.and(readers),
                }
            }
            _ => Ok(Inspected {
                holders: semaphore::holders(self, key),
                ttl: None,
            }),
        };
        inspected.unwrap_or_default()
    }
}

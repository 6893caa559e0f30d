//! The client: how it is made and configured, and one constructor for each primitive.

pub(crate) mod builder;
#[cfg(feature = "redis")]
mod connect;
#[cfg(feature = "redis")]
mod connection_settings;
mod detached;
mod facts;
pub(crate) mod force;
pub(crate) mod health;
pub(crate) mod inherit;
pub(crate) mod installed;
pub(crate) mod leader;
#[cfg(feature = "redis")]
mod map_settings;
mod probe;
pub(crate) mod quorum;
mod renew;
mod report;
pub(crate) mod scan;
pub(crate) mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::acquire::handle::Handle;
use crate::backend::memory::MemoryServer;
use crate::backend::{Backend, side_keys};
use crate::client::builder::Builder;
use crate::clock::Clock;
use crate::config::{Config, HOLDS_LOGGED_BY_CLOSE};
use crate::error::Error;
use crate::local::snapshot::Snapshot;
use crate::local::{Lives, Registry};
use crate::primitives::kinds::LockKind;
use crate::primitives::{
    CountDownLatch, ExpirableSemaphore, FairLock, FencedLock, Lock, MultiLock,
    NonReentrantFairLock, NonReentrantLock, RwLock, Semaphore, SpinLock,
};
use crate::resource::identity::Identity;
use crate::resource::key::Key;
use crate::resource::kind::Kind;
use crate::session::Session;
use crate::telemetry;

/// Why a key is refused that may be one beside another lock.
const RESERVED: &str =
    "the server stores what belongs to another lock under such names; use another name";

/// A client of one lock server.
///
/// A client is cheap to clone, and all clones are the same client. It uses one connection for commands, and from the
/// first wait on a second one for messages. A watchdog task renews its leases, and another task sends the releases of
/// dropped guards. These tasks end when the last clone of the client and its last lock and guard are dropped. Releases
/// that are pending at that moment are retried for at most one lease.
///
/// # Runtimes
/// A client needs a tokio runtime, and may outlive one. Its tasks and connections move to the runtime of the newest
/// call, or are started again by the next call. If a runtime exists but is no longer driven, the tasks in it stop and
/// holds end with their leases: do not use a client from a runtime that is only driven now and then.
///
/// # Copies of a process
/// A copy of a process (`fork`) is another client: it takes an id of its own when it uses the client for the first time, and
/// makes connections of its own. It sends nothing for what the original holds, and neither uses nor ends the original's
/// connections. In the copy, the holds of the original are [lost](crate::Loss::NewIdentity), and acquisitions that waited start
/// again if the copy polls them. A lock server [in memory](Client::in_memory) is copied as well. From then on there are two
/// of them, which know nothing of each other, so the two processes do not exclude each other. In the copy's server the
/// original's holds end with their leases.
///
/// Tokio does not support a fork while a runtime runs. Fork outside of any runtime, before it has threads of its own or while no
/// other thread uses the client, and make a new runtime in the copy. There, neither use nor drop the runtime of before
/// ([`std::mem::forget`] it), since both processes share what it hears of its sockets: each would take the other's
/// events. For machines that are restored from a snapshot, see [`renew_identity`](Client::renew_identity).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Client;
///
/// let client = Client::in_memory();
/// // let client = Client::connect("redis://127.0.0.1:6379").await?;
/// let guard = client.lock("order:42").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    lives: Arc<Lives>,
}

impl Client {
    /// Creates a client of a new lock server inside this process, with default settings.
    ///
    /// The server behaves like Redis and needs no installation. It is meant for examples, tests and programs of a single
    /// process. It uses tokio's clock, so tests can pause time. To connect several clients to one such server, use
    /// [`Builder::in_memory`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn in_memory() -> Self {
        Self::on(Config::default(), MemoryServer::new())
    }

    /// Returns a builder, to create a client with other settings.
    ///
    /// # Examples
    /// See [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client whose clock is not that of its server.
    #[cfg(test)]
    pub(crate) fn on_clock(clock: Clock, server: &MemoryServer) -> Self {
        let server = server.clone();
        let config = Config::default();
        let make = move || {
            let identity = Identity::new();
            let backend = Arc::new(server.connect(&config, identity.id()));
            new_registry(identity, &config, clock.clone(), backend)
        };
        Self {
            lives: Lives::new(make(), Box::new(move || Ok(make()))),
        }
    }

    /// A client of a lock server inside this process.
    fn on(config: Config, server: MemoryServer) -> Self {
        Self::decorated(config, server, |backend, _| backend)
    }

    /// A client of a lock server inside this process, with something between the two.
    fn decorated(
        config: Config,
        server: MemoryServer,
        decorate: impl Fn(Arc<dyn Backend>, &Clock) -> Arc<dyn Backend> + Send + Sync + 'static,
    ) -> Self {
        let make = move || {
            let identity = Identity::new();
            let clock = server.clock();
            let backend = Arc::new(server.connect(&config, identity.id()));
            let backend = decorate(backend, &clock);
            new_registry(identity, &config, clock, backend)
        };
        Self {
            lives: Lives::new(make(), Box::new(move || Ok(make()))),
        }
    }

    /// What the client knows in this process.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.lives.current()
    }

    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.lives.current().session)
    }

    /// Returns the reentrant [lock](Lock) on `key`, without any I/O.
    ///
    /// A key has 1 to 4096 bytes, including the client's prefix. Every operation on a lock with another key fails with
    /// [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let refused = client.lock("").acquire().await;
    /// assert!(refused.unwrap_err().is_permanent());
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        self.lock_of(key)
    }

    /// Returns the [lock](NonReentrantLock) on `key` that cannot be entered again inside its own scope.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.non_reentrant_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn non_reentrant_lock(&self, key: impl Into<String>) -> NonReentrantLock {
        self.lock_of(key)
    }

    /// Returns the [lock](SpinLock) on `key` whose waiters poll and do not subscribe.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.spin_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn spin_lock(&self, key: impl Into<String>) -> SpinLock {
        self.lock_of(key)
    }

    /// Returns the [lock](FencedLock) on `key` whose grants have fencing tokens.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.fenced_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn fenced_lock(&self, key: impl Into<String>) -> FencedLock {
        self.lock_of(key)
    }

    /// Returns the [multi-lock](MultiLock) on `keys`, which acquires all of them or none.
    ///
    /// The keys may be in any order, and may repeat. Acquiring fails with [`Error::NoKeys`] if there are none, and with
    /// [`Error::InvalidKey`] if one of them is empty or too long.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.multi_lock(["order:42", "stock:7", "item:9"]).acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn multi_lock<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        let keys = keys.into_iter();
        MultiLock::new(keys.map(|key| self.handle(Kind::Reentrant, key)))
    }

    /// Returns the [semaphore](ExpirableSemaphore) on `key` whose permits each have an id and a lease.
    ///
    /// With a key that is empty or too long, every operation on the semaphore fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let _permit = seats.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn expirable_semaphore(&self, key: impl Into<String>) -> ExpirableSemaphore {
        ExpirableSemaphore::new(self.handle(Kind::Permit, key))
    }

    /// Returns the [lock](FairLock) on `key` that is granted in the order of arrival, among all clients.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.fair_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&self, key: impl Into<String>) -> FairLock {
        self.lock_of(key)
    }

    /// Returns the [lock](NonReentrantFairLock) on `key` that is granted in the order of arrival and cannot be entered
    /// again inside its own scope.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.non_reentrant_fair_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn non_reentrant_fair_lock(&self, key: impl Into<String>) -> NonReentrantFairLock {
        self.lock_of(key)
    }

    /// Returns the [lock](RwLock) on `key` that admits any number of readers or one writer.
    ///
    /// With a key that is empty or too long, every operation on the lock fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.rw_lock("report:42");
    /// let (_one, _two) = (lock.read().acquire().await?, lock.read().acquire().await?);
    /// assert!(lock.write().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn rw_lock(&self, key: impl Into<String>) -> RwLock {
        RwLock::new(self.handle(Kind::Read, key))
    }

    /// Returns the [semaphore](Semaphore) on `key`. It has no permits until they are
    /// [set](Semaphore::try_set_permits).
    ///
    /// With a key that is empty or too long, every operation on the semaphore fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let pool = client.semaphore("printers");
    /// pool.try_set_permits(3).await?;
    /// let _permit = pool.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, key: impl Into<String>) -> Semaphore {
        Semaphore::new(self.handle(Kind::Semaphore, key))
    }

    /// Returns the [count-down latch](CountDownLatch) on `key`.
    ///
    /// With a key that is empty or too long, every operation on the latch fails with [`Error::InvalidKey`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let started = client.count_down_latch("started");
    /// started.wait().await?; // no count is set, so there is nothing to wait for
    /// # Ok(()) }
    /// ```
    pub fn count_down_latch(&self, key: impl Into<String>) -> CountDownLatch {
        CountDownLatch::new(self.handle(Kind::Latch, key))
    }

    /// The lock of the kind that its type names.
    fn lock_of<K: LockKind>(&self, key: impl Into<String>) -> Lock<K> {
        Lock::new(self.handle(K::KIND, key))
    }

    pub(crate) fn handle(&self, kind: Kind, key: impl Into<String>) -> Handle {
        let registry = self.lives.latest();
        let session = &registry.session;
        let key = Key::new(&session.config.key_prefix, &key.into()).and_then(|key| {
            let reason = if side_keys::is_reserved(key.name()) {
                Some(RESERVED)
            } else {
                session.backend.refuses(kind, &key)
            };
            match reason {
                None => Ok(key),
                Some(reason) => Err(Error::invalid_key(key.text(), reason)),
            }
        });
        Handle::new(&self.lives, kind, key)
    }

    /// Returns the id of this client: a random UUID, with which the names of all its owners begin. A copy of the process
    /// returns another one, and so does the client after [`renew_identity`](Client::renew_identity).
    ///
    /// # Examples
    /// ```
    /// let (one, two) = (distlock::Client::in_memory(), distlock::Client::in_memory());
    /// assert_ne!(one.id(), two.id());
    /// ```
    pub fn id(&self) -> Uuid {
        self.session().id
    }

    /// Returns what this client holds and waits for at this moment, with the places in the code; which of its acquisitions wait
    /// for each other; and which holds it has lost last.
    ///
    /// It asks no server, and does not block longer than it takes to copy the data, so it also answers when nothing else does.
    /// Holds and waits are read one after the other: an acquisition that is granted in between may be in both lists or in
    /// neither. Other processes are not in it.
    ///
    /// Waits for a [latch](crate::CountDownLatch), and for another branch of the same scope, are not listed. A
    /// [Redlock](crate::Quorum) that waits is listed by the client of its first server, and its holds by the clients of their
    /// servers.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let waiting = tokio::spawn(client.lock("order:42").acquire().into_future());
    /// tokio::task::yield_now().await;
    ///
    /// let now = client.snapshot();
    /// assert_eq!((now.holds[0].key.as_str(), now.waits[0].key.as_str()), ("order:42", "order:42"));
    /// println!("{} is held since {:?}, by {}", now.holds[0].key, now.holds[0].held_for, now.holds[0].place);
    /// # waiting.abort();
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        self.lives.current().snapshot()
    }

    /// Returns `true` once [`close`](Client::close) was called, on this client or on a clone of it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert!(!client.is_closed());
    /// client.close(std::time::Duration::from_secs(5)).await?;
    /// assert!(client.is_closed());
    /// # Ok(()) }
    /// ```
    pub fn is_closed(&self) -> bool {
        self.session().is_closed()
    }

    /// Refuses further acquisitions, and waits until this client holds nothing any more: all its guards have ended, and the
    /// server has confirmed each release.
    ///
    /// Call it before the program ends. A lock that is held when the program ends, or whose guard is dropped right before
    /// the end, may otherwise stay locked until its lease expires.
    ///
    /// End the guards of the calling function first: a guard that lives in the code that awaits `close` cannot end meanwhile,
    /// so `close` waits for the whole `timeout`. A guard that has lost its hold has nothing to release, and is not waited for.
    ///
    /// Acquisitions that are waiting get [`Error::Closed`], and later ones as well. The following goes on as before:
    /// * Guards that still exist are renewed until they end, and can be released.
    /// * Code inside their scopes can still re-enter their holds, also if it waits for another branch of the scope.
    /// * A waiter of a [latch](crate::CountDownLatch) goes on waiting. The numbers of latches and semaphores can be
    ///   changed, and permits can be given back.
    /// * Locks can be inspected and force-released.
    ///
    /// # Errors
    /// [`Error::ReleasesPending`]: when `timeout` was over, guards were alive, or the server had not confirmed all releases.
    /// The log names ten holds of such guards, the oldest ones, with the lines that acquired them. The guards go on as before,
    /// and the client keeps retrying the releases in the background. With [`Duration::MAX`] there is no limit.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed and the releases continue in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// drop(client.lock("order:42").acquire().await?);
    /// client.close(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn close(&self, timeout: Duration) -> Result<(), Error> {
        let registry = self.lives.current();
        let session = &registry.session;
        registry.close();
        let until = session.now().after(timeout);
        crate::sync::select! {
            // In this order: releases that are done count, even if the timeout is zero.
            biased;
            () = session.holds_nothing() => Ok(()),
            () = session.clock.sleep_until(until) => Err(still_holds(&registry, timeout)),
        }
    }
}

/// What a close that has waited for `after` did not see end.
fn still_holds(registry: &Registry, after: Duration) -> Error {
    let Snapshot { holds, .. } = registry.snapshot();
    for hold in holds.iter().take(HOLDS_LOGGED_BY_CLOSE) {
        telemetry::held_after_close(hold.kind, &hold.key, hold.owner, hold.held_for, hold.place);
    }
    Error::ReleasesPending {
        holds: holds.len(),
        releases: registry.session.pending_releases(),
        after,
    }
}

/// A client's registry, with nothing in it.
fn new_registry(
    identity: Arc<Identity>,
    config: &Config,
    clock: Clock,
    backend: Arc<dyn Backend>,
) -> Arc<Registry> {
    Registry::new(Session::new(identity, config.clone(), clock, backend))
}

impl AsRef<Client> for Client {
    fn as_ref(&self) -> &Client {
        self
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Creates a client of a lock server inside this process. Several clients can share one server.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`]: a setting has a value that cannot
    /// work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MemoryServer};
    ///
    /// let server = MemoryServer::new();
    /// let (one, two) = (Client::builder().in_memory(&server)?, Client::builder().in_memory(&server)?);
    /// let _guard = one.lock("order:42").acquire().await?;
    /// assert!(two.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn in_memory(self, server: &MemoryServer) -> Result<Client, Error> {
        let config = self.config.clone().with(self.settings.clone())?;
        let config = config.validated()?;
        let patience = config.response_timeout;
        Ok(Client::decorated(
            config,
            server.clone(),
            move |backend, clock| self.decorate(backend, clock, patience),
        ))
    }

    /// Puts the tests' decorators around a backend.
    #[cfg(feature = "test-util")]
    fn decorate(
        &self,
        backend: Arc<dyn Backend>,
        clock: &Clock,
        response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        self.decorators.around(backend, clock, response_timeout)
    }

    #[cfg(not(feature = "test-util"))]
    fn decorate(
        &self,
        backend: Arc<dyn Backend>,
        _clock: &Clock,
        _response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        backend
    }
}

//! The client: where it comes from, what it is set to, and one constructor for each primitive.

pub(crate) mod builder;
pub(crate) mod inherit;
pub(crate) mod installed;
pub(crate) mod quorum;
pub(crate) mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::acquire::handle::Handle;
use crate::backend::Backend;
use crate::backend::memory::MemoryServer;
use crate::client::builder::Builder;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::hold::Session;
use crate::key::Key;
use crate::kind::Kind;
use crate::local::Registry;
use crate::primitives::{
    CountDownLatch, ExpirableSemaphore, FairLock, FencedLock, Lock, MultiLock,
    NonReentrantFairLock, NonReentrantLock, RwLock, Semaphore, SpinLock,
};

/// A client of one lock server. Cheap to clone; clones are one client.
///
/// It has one connection for commands, one for messages (from the first wait on), a watchdog that renews its leases and
/// a task that releases what was dropped. All of them end with its last clone, lock and guard, and what is owed then is
/// seen through for at most one lease.
///
/// It may outlive a runtime: what died with one goes on in the runtime of the newest call, or is started by the next. A
/// runtime that lives on but is not driven any more keeps what was started in it, and holds then end with their leases;
/// so do not use one client from a runtime that is driven only now and then.
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
    registry: Arc<Registry>,
}

impl Client {
    /// A client of a server of its own in this process: the same semantics as Redis, nothing to install.
    ///
    /// For examples, tests and programs of one process. Its clock is tokio's, so tests may pause time. Clients of one
    /// shared server: [`Builder::in_memory`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.lock("order:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn in_memory() -> Self {
        let (server, config) = (MemoryServer::new(), Config::default());
        let backend = server.connect(&config);
        Self::new(config, server.clock(), Arc::new(backend))
    }

    /// A client of the Redis or Valkey server at `url`, with default settings: see [`Builder::connect`].
    ///
    /// # Errors
    /// Those of [`Builder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up connecting.
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Settings for a client.
    /// # Examples
    /// See [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(config: Config, clock: Clock, backend: Arc<dyn Backend>) -> Self {
        Self {
            registry: Registry::new(Session::new(config, clock, backend)),
        }
    }

    /// The reentrant lock on a key of 1 to 4096 bytes, the client's prefix included.
    ///
    /// No I/O. A key that is empty or too long is refused by whatever is done with the lock.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let refused = client.lock("").acquire().await;
    /// assert!(refused.unwrap_err().is_permanent());
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(self.handle(Kind::Reentrant, key))
    }

    /// A [lock](NonReentrantLock) on `key` that is never entered twice.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.non_reentrant_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn non_reentrant_lock(&self, key: impl Into<String>) -> NonReentrantLock {
        NonReentrantLock::new(self.handle(Kind::NonReentrant, key))
    }

    /// A [lock](SpinLock) on `key` that is waited for without subscriptions.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.spin_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn spin_lock(&self, key: impl Into<String>) -> SpinLock {
        SpinLock::new(self.handle(Kind::Spin, key))
    }

    /// A [lock](FencedLock) on `key` whose grants have fencing tokens.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.fenced_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn fenced_lock(&self, key: impl Into<String>) -> FencedLock {
        FencedLock::new(self.handle(Kind::Fenced, key))
    }

    /// A [multi-lock](MultiLock) on `keys`: all of them, or none.
    ///
    /// Keys may come in any order, and more than once. No key at all, and a bad one, show when the lock is used, as
    /// [`Error::InvalidKey`].
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

    /// The [semaphore](ExpirableSemaphore) on `key` whose permits have an id and a lease each.
    ///
    /// A key that is empty or too long shows when the semaphore is used, as [`Error::InvalidKey`].
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

    /// A [lock](FairLock) on `key` that is granted in the order of arrival, among all clients.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.fair_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&self, key: impl Into<String>) -> FairLock {
        FairLock::new(self.handle(Kind::Fair, key))
    }

    /// A [lock](NonReentrantFairLock) on `key` that is granted in the order of arrival, and never entered twice.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.non_reentrant_fair_lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn non_reentrant_fair_lock(&self, key: impl Into<String>) -> NonReentrantFairLock {
        NonReentrantFairLock::new(self.handle(Kind::NonReentrantFair, key))
    }

    /// A [lock](RwLock) on `key` that many may read or one may write.
    ///
    /// A key that is empty or too long shows when the lock is used, as [`Error::InvalidKey`].
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

    /// The [semaphore](Semaphore) on `key`. It has permits once somebody has [set them](Semaphore::try_set_permits).
    ///
    /// A key that is empty or too long shows when the semaphore is used, as [`Error::InvalidKey`].
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

    /// The [count-down latch](CountDownLatch) on `key`.
    ///
    /// A key that is empty or too long shows when the latch is used, as [`Error::InvalidKey`].
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let started = client.count_down_latch("started");
    /// started.wait().await?; // nobody has set a count
    /// # Ok(()) }
    /// ```
    pub fn count_down_latch(&self, key: impl Into<String>) -> CountDownLatch {
        CountDownLatch::new(self.handle(Kind::Latch, key))
    }

    pub(crate) fn handle(&self, kind: Kind, key: impl Into<String>) -> Handle {
        let key = Key::new(&self.registry.session.config.key_prefix, &key.into());
        Handle::new(&self.registry, kind, key)
    }

    /// The id that all owners of this client begin with: a random UUID, never stored anywhere else.
    /// # Examples
    /// ```
    /// let (one, two) = (distlock::Client::in_memory(), distlock::Client::in_memory());
    /// assert_ne!(one.id(), two.id());
    /// ```
    pub fn id(&self) -> Uuid {
        self.registry.session.id
    }

    /// Refuses further acquisitions and waits until all background releases are confirmed.
    ///
    /// For the end of a program: a guard dropped just before would otherwise cost others its lease. Guards that still
    /// live go on being renewed until they end, and the scopes that they run may enter their own holds again.
    ///
    /// # Errors
    /// [`Error::ReleasesPending`]: the server had not confirmed all releases when `timeout` was over. The client keeps
    /// retrying them in the background.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client closed and the releases under way.
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
        let session = &self.registry.session;
        session.close();
        let until = session.now().after(timeout);
        tokio::select! {
            biased;
            () = session.releases_done() => Ok(()),
            () = session.clock.sleep_until(until) => Err(Error::ReleasesPending {
                releases: session.pending_releases(),
                after: timeout,
            }),
        }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
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
    /// A client of a server in this process.
    ///
    /// # Errors
    /// [`Error::InvalidLease`], [`Error::InvalidWait`], [`Error::InvalidConfig`] for settings that cannot work.
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
        self.build(server.clock(), |config| Arc::new(server.connect(config)))
    }

    /// A client of the Redis or Valkey server (one that speaks RESP3: Redis from 6 on) at `url`: `redis://[user:password@]host[:port][/db]`.
    ///
    /// # Errors
    /// * [`Error::InvalidUrl`], and those of [`in_memory`](Builder::in_memory).
    /// * [`Error::Unavailable`]: nobody answers there. Once a client stands it reconnects by itself.
    /// * [`Error::Denied`]: the server refuses the user.
    ///
    /// # Cancel safety
    /// Dropping the future gives up connecting.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let builder = distlock::Client::builder().key_prefix("shop:");
    /// let client = builder.connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        use crate::backend::redis::RedisBackend;
        let config = self.config.clone().validated()?;
        let backend = RedisBackend::connect(url, &config, Clock::Boot).await?;
        self.build(Clock::Boot, |_| Arc::new(backend))
    }

    fn build(
        self,
        clock: Clock,
        backend: impl FnOnce(&Config) -> Arc<dyn Backend>,
    ) -> Result<Client, Error> {
        let config = self.config.validated()?;
        let backend = backend(&config);
        #[cfg(feature = "test-util")]
        let backend = self
            .decorators
            .around(backend, &clock, config.response_timeout);
        Ok(Client::new(config, clock, backend))
    }
}

//! One constructor for each primitive. None of them sends anything.

use crate::acquire::handle::Handle;
use crate::backend::side_keys;
use crate::client::Client;
use crate::error::Error;
use crate::primitives::kinds::LockKind;
use crate::primitives::{
    CountDownLatch, ExpirableSemaphore, FairLock, FencedLock, Lock, MultiLock,
    NonReentrantFairLock, NonReentrantLock, RwLock, Semaphore, SpinLock,
};
use crate::resource::key::Key;
use crate::resource::kind::Kind;

/// Why a key is refused that may be one beside another lock.
const RESERVED: &str =
    "the server stores what belongs to another lock under such names; use another name";

impl Client {
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
    #[doc(alias = "get_lock")]
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
    #[doc(alias = "get_spin_lock")]
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
    #[doc(alias = "get_fenced_lock")]
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
    #[doc(alias = "get_multi_lock")]
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
    #[doc(alias = "get_permit_expirable_semaphore")]
    pub fn expirable_semaphore(&self, key: impl Into<String>) -> ExpirableSemaphore {
        ExpirableSemaphore::new(self.handle(Kind::ExpirableSemaphore, key))
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
    #[doc(alias = "get_fair_lock")]
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
    #[doc(alias = "get_read_write_lock")]
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
    #[doc(alias = "get_semaphore")]
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
    #[doc(alias = "get_count_down_latch")]
    pub fn count_down_latch(&self, key: impl Into<String>) -> CountDownLatch {
        CountDownLatch::new(self.handle(Kind::CountDownLatch, key))
    }

    /// The lock of the kind that its type names.
    fn lock_of<K: LockKind>(&self, key: impl Into<String>) -> Lock<K> {
        Lock::new(self.handle(K::KIND, key))
    }

    pub(crate) fn handle(&self, kind: Kind, key: impl Into<String>) -> Handle {
        let registry = self.lives.peek();
        let session = &registry.session;
        let written = key.into();
        let key = Key::new(&session.config.key_prefix, &written).and_then(|key| {
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
        Handle::new(&self.lives, kind, written, key)
    }
}

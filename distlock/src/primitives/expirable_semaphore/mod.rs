//! The permit-expirable semaphore: Redisson's `RPermitExpirableSemaphore`.

mod by_id;
mod number;

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::expirable_permit::ExpirablePermit;

/// A number of permits that all clients of a server share, each with its own id and lease; made by
/// [`Client::expirable_semaphore`](crate::Client::expirable_semaphore).
///
/// The number of permits that are taken at the same time never exceeds the number that was set, among all clients of the
/// same server, including those of Redisson. A semaphore has no permits until they are
/// [set](ExpirableSemaphore::try_set_permits).
///
/// * **Permits do not leak.** A permit is released when its guard is dropped. It expires when its lease ends, also
///   after a crash of its process. Waiters are woken in both cases.
/// * **Renewed by a watchdog.** Without a fixed [lease](Acquire::lease) a permit is renewed for as long as its guard
///   exists: by default it has a lease of 30 s and is renewed every 10 s
///   ([`watchdog_timeout`](crate::Builder::watchdog_timeout)). Redisson does not renew permits: those with a lease expire,
///   and those without one never do.
/// * **Identified by ids.** Other processes that know the [ids](ExpirablePermit::ids) can
///   [release](ExpirableSemaphore::release) a permit or [change its lease](ExpirableSemaphore::update_lease).
/// * **All or none.** Several permits of one acquisition are granted together.
/// * **Not reentrant.** Acquiring inside the scope of a permit takes another permit.
/// * **Waiters notice that a semaphore is gone.** If the semaphore is deleted, or the server loses its data, acquisitions that
///   have waited since before then fail with [`Error::Lost`] within seconds. Acquisitions that begin later wait until permits are
///   set. If another client deletes the semaphore, or it expires, the first waiter of this client notices that within seconds, and
///   acquisitions that begin behind it in this time fail with it.
/// * **It stays until it is deleted**, unless it is to [expire after](ExpirableSemaphore::expire_after) its last use.
/// * **Fair inside a client only.** The waiters of one client are served in the order of their arrival, so a request for
///   many permits delays the waiters of its client behind it. Waiters of different clients have no particular order.
///
/// Leases are measured by the server's clock, so the clocks of the clients do not matter. Each permit that is taken is an
/// entry of a sorted set. One acquisition takes at most 1000 permits, so that no command blocks the server for long.
///
/// In Redis, the keys `q` and `{q}` are two semaphores with one list of permits, because Redisson gives both lists the same name. The
/// semaphores [lose permits](crate::guide::from_redisson#keys-that-share-data) by that. Use only one of the two, or a
/// [`key_prefix`](crate::Builder::key_prefix).
///
/// The semaphore corresponds to Redisson's `RedissonPermitExpirableSemaphore` and uses the same keys, ids and channel.
/// The published messages differ: they always contain the number of available permits, and never a negative number.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let seats = client.expirable_semaphore("seats");
/// seats.try_set_permits(2).await?;
/// let permit = seats.acquire().await?;
/// assert_eq!(seats.available_permits().await?, 1);
/// permit.release().await?;
/// assert_eq!(seats.available_permits().await?, 2);
/// # Ok(()) }
/// ```
#[doc(alias = "RPermitExpirableSemaphore")]
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct ExpirableSemaphore {
    handle: Handle,
}

impl ExpirableSemaphore {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let semaphore = distlock::Client::in_memory().expirable_semaphore("order:42");
    /// assert_eq!(semaphore.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        self.handle.key_text()
    }

    /// Sets after which time without use a semaphore that this handle makes expires, with its permits: 1 ms to 45 days. Without
    /// this setting it stays in the server until it is [deleted](ExpirableSemaphore::delete).
    ///
    /// Each use by a handle with this setting moves the end forward: a change of the number or of a permit, and each permit that
    /// is acquired, renewed or released. A refused acquisition does not count as a use, and neither does a method that only
    /// reads. The end never moves to an earlier time. If another program, or a handle without this setting, has made the
    /// semaphore, it does not expire.
    ///
    /// The permits expire with the semaphore. So a permit that is acquired, renewed, [attached](crate::Client::attach) or
    /// [given another lease](ExpirableSemaphore::update_lease) moves the end at least to the end of its [lease](Acquire::lease), also
    /// by a handle without this setting. If the time is shorter than the lease, the semaphore stays for the rest of the lease
    /// after its last release. Set the [permits](ExpirableSemaphore::try_set_permits) before each use, because an acquisition waits
    /// if the semaphore has expired.
    ///
    /// In the server this is the time to live of both keys, as after Redisson's `expire`. Other uses by Redisson do not move the
    /// end, also not for the permits that it acquires, and its `addPermits` removes it.
    ///
    /// # Errors
    /// When the handle is used, [`Error::InvalidConfig`] if the time is out of bounds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats:flight:LH123").expire_after(Duration::from_secs(600));
    /// seats.try_set_permits(2).await?;
    /// let permit = seats.acquire().await?;
    /// // The permit is renewed, and the semaphore with it.
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// permit.release().await?;
    /// tokio::time::sleep(Duration::from_secs(600)).await;
    /// assert!(seats.try_set_permits(3).await?, "it was gone");
    /// # Ok(()) }
    /// ```
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.handle.set_expire_after(time);
        self
    }

    /// Acquires one permit. Await the result for an [`ExpirablePermit`], or [run](Acquire::run) a future that needs it.
    ///
    /// # Errors
    /// When awaited, the errors of [`Acquire`](Acquire#errors).
    ///
    /// # Cancel safety
    /// The same as [`Acquire`](Acquire#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(2).await?;
    /// let permit = seats.acquire().wait(Duration::from_secs(5)).lease(Duration::from_secs(60)).await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire<ExpirablePermit> {
        self.acquire_many(1)
    }

    /// Acquires several permits, all of them or none, with one guard for all.
    ///
    /// Awaiting the result fails with [`Error::InvalidPermits`] if `permits` is not from 1 to 1000, because the server
    /// works on each permit by itself. If the semaphore has fewer permits in total, the acquisition waits until more are
    /// added.
    ///
    /// # Errors
    /// When awaited, the errors of [`Acquire`](Acquire#errors).
    ///
    /// # Cancel safety
    /// The same as [`Acquire`](Acquire#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let permits = seats.acquire_many(2).await?;
    /// assert_eq!(permits.ids().count(), 2);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_many(&self, permits: u32) -> Acquire<ExpirablePermit> {
        Acquire::new(LockSet::One(self.handle.clone())).permits(permits)
    }

    /// Acquires one permit if one is available, in one round trip and without waiting. Returns `None` otherwise.
    ///
    /// # Errors
    /// The errors of [`Acquire`], except [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// If the future is dropped, permits that were granted in the meantime are released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// assert!(seats.try_acquire().await?.is_none());
    /// seats.try_set_permits(1).await?;
    /// assert!(seats.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<ExpirablePermit>, Error>> + Send + use<> {
        self.try_acquire_many(1)
    }

    /// Acquires several permits if that many are available, in one round trip and without waiting. Returns `None`
    /// otherwise.
    ///
    /// # Errors
    /// The errors of [`Acquire`], except [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// If the future is dropped, permits that were granted in the meantime are released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let two = seats.try_acquire_many(2).await?;
    /// assert!(two.is_some() && seats.try_acquire_many(2).await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<ExpirablePermit>, Error>> + Send + use<> {
        self.acquire_many(permits).try_now()
    }
}

//! The permit-expirable semaphore: Redisson's `RPermitExpirableSemaphore`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::backend::PermitChange;
use crate::config::{check_lease, check_sum};
use crate::error::{Error, Loss};
use crate::guard::expirable_permit::ExpirablePermit;
use crate::resource::permit_id::PermitId;

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
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct ExpirableSemaphore {
    handle: Handle,
}

impl ExpirableSemaphore {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the key, as it was written: without the client's prefix, and also if it is invalid.
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

    /// Sets the number of permits, from 0 to 2147483647, if it was not set before. Returns whether it was set now.
    ///
    /// If a reply is lost the change is sent again, and still takes effect exactly once.
    ///
    /// # Errors
    /// * [`Error::InvalidPermits`]: the number is too large.
    /// * [`Error::Unavailable`]: the server did not answer for
    ///   [`unavailable_after`](crate::Builder::unavailable_after), and it is unknown whether the change was made.
    /// * [`Error::WrongType`]: the key holds a value that is not a number.
    /// * [`Error::Denied`]: the server refused the command.
    /// * [`Error::InvalidKey`]: the key is empty or too long.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// assert!(seats.try_set_permits(3).await?);
    /// assert!(!seats.try_set_permits(5).await?);
    /// assert_eq!(seats.permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        let permits = countable(permits)?;
        Ok(self.handle.adjust(PermitChange::TrySet(permits)).await? == 1)
    }

    /// Sets the total number of permits, including those that are taken.
    ///
    /// Permits that are taken stay taken. If they are more than the new total, the number of available permits is negative
    /// until enough of them are released.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.set_permits(2).await?;
    /// let _permit = seats.acquire().await?;
    /// seats.set_permits(5).await?;
    /// assert_eq!(seats.available_permits().await?, 4);
    /// # Ok(()) }
    /// ```
    pub async fn set_permits(&self, permits: u32) -> Result<(), Error> {
        let permits = countable(permits)?;
        self.handle
            .adjust(PermitChange::SetPermits(permits))
            .await?;
        Ok(())
    }

    /// Adds permits, or removes some if the number is negative. A semaphore that was never set starts at 0.
    ///
    /// If more permits are removed than are available, the number of available permits is negative until enough of the
    /// taken ones are released.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits). With [`Error::InvalidPermits`] the number of
    /// available permits would be above 2147483647, or as far below 0, and nothing was changed. After [`Error::Unavailable`] the
    /// change may have been made, and a second call is a second change: read the number by [`permits`](ExpirableSemaphore::permits)
    /// before you repeat it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.add_permits(3).await?;
    /// seats.add_permits(-1).await?;
    /// assert_eq!(seats.available_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, permits: i32) -> Result<(), Error> {
        let sum = self.handle.adjust(PermitChange::Add(permits)).await?;
        check_sum(sum).map(drop)
    }

    /// Returns how many permits are available. The number is negative if more permits are taken than the semaphore has in
    /// total, and it may have changed by the time it is returned.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert_eq!(client.expirable_semaphore("seats").available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(PermitChange::Count).await
    }

    /// Returns how many permits are taken.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let _permits = seats.acquire_many(2).await?;
    /// assert_eq!(seats.acquired_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn acquired_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(PermitChange::AcquiredPermits).await
    }

    /// Returns the total number of permits, available and taken.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let _permit = seats.acquire().await?;
    /// assert_eq!(seats.permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn permits(&self) -> Result<i64, Error> {
        self.handle.adjust(PermitChange::TotalPermits).await
    }

    /// Releases the permit with this id, no matter who holds it, and wakes waiters.
    ///
    /// If a guard still holds the permit, it learns of the loss within about a second if the server
    /// [tracks](crate::Builder::track_holds) the semaphore, and otherwise at its next renewal, within a third of its lease.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit had already expired or been released, and the errors of
    /// [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let id = seats.acquire().await?.into_id()?;
    /// let text = id.to_string(); // to another process
    /// seats.release(text.parse()?).await?;
    /// assert!(seats.release(id).await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, id: PermitId) -> Result<(), Error> {
        let released = self.handle.adjust(PermitChange::ReleasePermit(id)).await?;
        self.was_out(released == 1)
    }

    /// Sets the lease of the permit with this id: from 1 ms to ten years, counted from now.
    ///
    /// As in Redisson, the new lease may be shorter than what was left. A watchdog that renews the permit continues to
    /// renew it. A lease that is shorter than the watchdog's may expire before the next renewal.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit had already expired or been released, [`Error::InvalidLease`] if the lease is out of
    /// range, and the errors of [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let id = seats.acquire().await?.into_id()?;
    /// seats.update_lease(id, Duration::from_secs(3600)).await?;
    /// assert!(seats.remaining_lease(id).await? > Some(Duration::from_secs(3500)));
    /// # Ok(()) }
    /// ```
    pub async fn update_lease(&self, id: PermitId, lease: Duration) -> Result<(), Error> {
        check_lease(lease)?;
        let updated = self
            .handle
            .adjust(PermitChange::UpdateLease(id, lease))
            .await?;
        self.was_out(updated == 1)
    }

    /// Returns how long the permit with this id stays taken if it is neither renewed nor released.
    ///
    /// The result is `None` if Redisson acquired the permit without a lease, so that it never expires.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit has expired or was released, and the errors of
    /// [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().lease(Duration::from_secs(10)).await?;
    /// assert!(seats.remaining_lease(permit.id()).await? <= Some(Duration::from_secs(10)));
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self, id: PermitId) -> Result<Option<Duration>, Error> {
        let left = self.handle.adjust(PermitChange::RemainingLease(id)).await?;
        // -1 is a lease that never ends, -2 a permit that is not acquired.
        self.was_out(left >= -1)?;
        Ok(u64::try_from(left).ok().map(Duration::from_millis))
    }

    /// Removes the semaphore with all its permits, and returns whether there was one.
    ///
    /// Use it to repair a system by hand, not as a part of normal work. Acquisitions that wait fail with [`Error::Lost`]
    /// within seconds, unless permits are set again before. Former holders learn of the loss within about a second if
    /// the server [tracks](crate::Builder::track_holds) the semaphore, and otherwise at their next renewal, within a third of their
    /// lease. Their scopes may still run until then.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the semaphore may or may not be removed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// assert!(seats.delete().await?);
    /// assert!(!seats.delete().await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }

    /// Returns [`Error::Lost`] if the permit was not taken.
    fn was_out(&self, was_out: bool) -> Result<(), Error> {
        if was_out {
            return Ok(());
        }
        Err(Error::lost(self.handle.key()?.text(), Loss::Gone))
    }
}

/// Rejects a number of permits that Redisson cannot store.
fn countable(permits: u32) -> Result<u32, Error> {
    check_sum(permits.into()).map(|_| permits)
}

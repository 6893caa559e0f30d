//! The semaphore: Redisson's `RSemaphore`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::backend::SemaphoreChange;
use crate::config::{MAX_NUMBER, check_permits, check_sum, check_total};
use crate::error::Error;
use crate::guard::permit::Permit;

/// A number of permits that all clients of a server share; made by [`Client::semaphore`](crate::Client::semaphore).
///
/// This type is a handle: it is cheap to clone, does no I/O on its own, and all handles with the same key are the same
/// semaphore. A semaphore has no permits until they are [set](Semaphore::try_set_permits) or
/// [added](Semaphore::add_permits).
///
/// * **Permits have no lease.** As in Redisson, a permit is taken until it is released. The permits of a process that
///   crashed stay taken, and so do those of a client that ended while its server was unreachable. To prevent this, use
///   an [`ExpirableSemaphore`](crate::ExpirableSemaphore).
/// * **Retries are idempotent.** If a reply is lost, the request is sent again and still takes effect exactly once. For this the
///   server keeps the owners that have permits in one separate key. It removes this key with the last owner, or with the
///   semaphore. It also keeps a small key for each request that is under way. If the request is answered at once, the client's
///   next command removes that key; otherwise it exists for the sum of [`watchdog_timeout`](crate::Builder::watchdog_timeout) and
///   [`unavailable_after`](crate::Builder::unavailable_after): 35 s by default.
/// * **Waiters notice that a semaphore is gone.** If the semaphore is deleted, or the server loses its data, acquisitions that
///   have waited since before then fail with [`Error::Lost`] within seconds. Acquisitions that begin later wait until permits are
///   set. If another client deletes the semaphore, or it expires, the first waiter of this client notices that within seconds, and
///   acquisitions that begin behind it in this time fail with it.
/// * **It stays until it is deleted**, unless it is to [expire after](Semaphore::expire_after) its last use.
/// * **Fair inside a client only.** The waiters of one client are served in the order of their arrival, even if they ask
///   for different numbers of permits. Waiters of different clients have no particular order.
/// * **Permits do not belong to tasks.** They are not reentrant, and can be released by any task.
///
/// The semaphore corresponds to Redisson's `RedissonSemaphore` and uses the same key and channel, with two differences: a
/// change keeps the time to live of the key, and a number of permits below 1 is not published, because Redisson's
/// listeners cannot handle it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let printers = client.semaphore("printers");
/// printers.try_set_permits(3).await?;
/// let printed = printers.acquire().run(async { "printed" }).await?;
/// assert_eq!(printed, "printed");
/// # Ok(()) }
/// ```
#[doc(alias = "RSemaphore")]
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct Semaphore {
    handle: Handle,
}

impl Semaphore {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let semaphore = distlock::Client::in_memory().semaphore("order:42");
    /// assert_eq!(semaphore.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        self.handle.key_text()
    }

    /// Sets after which time without use a semaphore that this handle makes expires, with everything that is stored for it: 1
    /// ms to 45 days. Without this setting it stays in the server until it is [deleted](Semaphore::delete).
    ///
    /// Each use by a handle with this setting moves the end forward: setting, adding, draining, and each permit that is acquired
    /// or released. A refused acquisition does not count as a use, and neither does a method that only reads. The end never moves
    /// to an earlier time. If another program, or a handle without this setting, has made the semaphore, it does not expire.
    ///
    /// * **The time must be longer than any permit is held.** Permits of a plain semaphore are not renewed. If nobody uses the
    ///   semaphore for this time while a permit is taken, the semaphore expires. The release of that permit returns
    ///   [`Error::Lost`], and [new permits](Semaphore::try_set_permits) may be granted while its holder still works. An
    ///   [`ExpirableSemaphore`](crate::ExpirableSemaphore) stays as long as the leases of its permits, which are renewed.
    /// * **Set the permits before each use.** [`try_set_permits`](Semaphore::try_set_permits) sets them only if there are none,
    ///   and counts as a use. An acquisition waits if the semaphore has expired before, and fails with [`Error::Lost`] if it
    ///   expires during the wait, or while another acquisition of this client waits for it.
    ///
    /// In the server this is the time to live of the key, as after Redisson's `expire` or `trySetPermits(permits, ttl)`. Other
    /// uses by Redisson do not move the end, and its `addPermits` and `drainPermits` remove it.
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
    /// let uploads = client.semaphore("uploads:customer:7").expire_after(Duration::from_secs(600));
    /// uploads.try_set_permits(2).await?;
    /// uploads.acquire().run(async {}).await?;
    /// tokio::time::sleep(Duration::from_secs(600)).await;
    /// assert!(uploads.try_set_permits(3).await?, "it was gone");
    /// # Ok(()) }
    /// ```
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.handle.set_expire_after(time);
        self
    }

    /// Sets the number of permits, from 0 to 2147483647, if it was not set before. Returns whether it was set now.
    ///
    /// A semaphore whose permits are all taken was set before, and is not changed.
    ///
    /// # Errors
    /// * [`Error::InvalidPermits`]: the number is too large.
    /// * [`Error::Unavailable`]: the server did not answer for
    ///   [`unavailable_after`](crate::Builder::unavailable_after). The change was retried for that time, and it is unknown
    ///   whether it was made.
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
    /// let printers = client.semaphore("printers");
    /// assert!(printers.try_set_permits(3).await?);
    /// assert!(!printers.try_set_permits(5).await?);
    /// assert_eq!(printers.available_permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        check_total(permits)?;
        Ok(self.handle.adjust(SemaphoreChange::TrySet(permits)).await? == 1)
    }

    /// Adds permits, or removes some if the number is negative. Returns how many are available afterwards.
    ///
    /// The result can be negative. No permit can then be acquired until enough permits are released. If the number of
    /// permits was never set, it starts at 0.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits). [`Error::InvalidPermits`]: the sum would be above 2147483647
    /// or below -2147483647, and nothing was changed. After [`Error::Unavailable`] the change may have been made, and a second call
    /// is a second change: read the number by [`available_permits`](Semaphore::available_permits) before you repeat it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// assert_eq!(printers.add_permits(3).await?, 3);
    /// assert_eq!(printers.add_permits(-2).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, permits: i32) -> Result<i64, Error> {
        check_sum(self.handle.adjust(SemaphoreChange::Add(permits)).await?)
    }

    /// Releases permits without a [`Permit`], like Redisson's `release(n)`. Returns how many are available afterwards.
    ///
    /// Use it for permits that were [forgotten](Permit::forget), or that another program acquired. The caller must not
    /// release more permits than were acquired; this is not checked.
    ///
    /// # Errors
    /// The same as [`add_permits`](Semaphore::add_permits), also for a repetition, and [`Error::InvalidPermits`] for 0.
    ///
    /// # Cancel safety
    /// If the future is dropped, the permits may or may not be released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// printers.acquire_many(2).await?.forget();
    /// assert_eq!(printers.release_permits(2).await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn release_permits(&self, permits: u32) -> Result<i64, Error> {
        check_permits(permits, MAX_NUMBER)?;
        // It was checked, so it fits.
        let permits = i32::try_from(permits).unwrap_or(i32::MAX);
        self.add_permits(permits).await
    }

    /// Returns how many permits are available. The number is negative if more were removed than were available, and may
    /// have changed by the time it is returned.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert_eq!(client.semaphore("printers").available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(SemaphoreChange::Count).await
    }

    /// Takes all available permits without a [`Permit`], and returns their number.
    ///
    /// A negative number of permits becomes 0, and the negative number is returned, as in Redisson and Java.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits). After [`Error::Unavailable`] the permits may have been taken, and
    /// their number is not known: a second call does not return it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the permits may or may not be taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert_eq!(printers.drain_permits().await?, 3);
    /// assert_eq!(printers.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn drain_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(SemaphoreChange::Drain).await
    }

    /// Removes the semaphore with all its permits, and returns whether there was one.
    ///
    /// Use it to repair a system by hand, not as a part of normal work. Acquisitions that wait fail with [`Error::Lost`]
    /// within seconds, unless permits are set again before. Permits that are still taken belong to the removed semaphore:
    /// they are not added to a new one, and their [`release`](Permit::release) returns [`Error::Lost`]. A semaphore that
    /// Redisson deletes and sets again is not recognized as a new one.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the semaphore may or may not be removed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert!(printers.delete().await?);
    /// assert!(printers.try_set_permits(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }

    /// Acquires one permit. Await the result for a [`Permit`], or [run](Acquire::run) a future while the permit is taken.
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
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(1).await?;
    /// let permit = printers.acquire().await?;
    /// let busy = printers.acquire().wait(Duration::from_millis(10)).await;
    /// assert!(busy.unwrap_err().is_busy());
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire<Permit> {
        self.acquire_many(1)
    }

    /// Acquires several permits, all of them or none. If the semaphore has fewer permits in all, the acquisition waits until its
    /// [wait](Acquire::wait) is over, and without a limit for ever.
    ///
    /// Awaiting the result fails with [`Error::InvalidPermits`] if `permits` is not from 1 to 2147483647.
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
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// let two = printers.acquire_many(2).await?;
    /// assert_eq!((two.permits(), printers.available_permits().await?), (2, 1));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_many(&self, permits: u32) -> Acquire<Permit> {
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
    /// let printers = client.semaphore("printers");
    /// assert!(printers.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.acquire().try_now()
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
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// assert!(printers.try_acquire_many(4).await?.is_none());
    /// assert!(printers.try_acquire_many(3).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.acquire_many(permits).try_now()
    }
}

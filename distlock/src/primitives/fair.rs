//! The fair lock: Redisson's `RLock` of `getFairLock`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::Member;
use crate::resource::owner::Holder;

/// A lock that is granted in the order of arrival, among all clients; made by
/// [`Client::fair_lock`](crate::Client::fair_lock).
///
/// The waiters of all processes stand in one queue in the server. No waiter is overtaken: not by an acquisition that
/// starts when the lock is released, not by [`try_acquire`](FairLock::try_acquire), and not by a hand-over inside a
/// client. Each grant therefore costs round trips. If the order does not matter, [`Lock`](crate::Lock) is much faster.
///
/// * Each waiter is woken by its own message, and reports to the server at intervals.
/// * A waiter that times out or is dropped leaves the queue at once.
/// * A waiter whose process crashed delays those behind it by at most the
///   [waiter timeout](crate::Builder::waiter_timeout). Several crashed waiters delay them only once.
/// * A waiter that could not report for that long loses its place, and continues to wait at the end of the queue.
///
/// In all other respects it behaves like [`Lock`](crate::Lock): leases, the watchdog, loss, and re-entry inside its scope,
/// which does not queue. In the server its holds are stored like those of a `Lock`, so that both kinds exclude each
/// other. Use only one kind for a key: a `Lock` does not queue, and its release does not wake the waiters of a fair lock.
///
/// In Redis, the keys `q` and `{q}` are two locks with one queue, because Redisson gives both queues the same name. While
/// somebody waits for `q`, `{q}` is granted to nobody else, even if it is free. Use only one of the two.
///
/// The lock corresponds to Redisson's `RedissonFairLock` and uses the same keys, fields and channels: the waiters of both
/// stand in one queue. A waiter of Redisson keeps its place for five minutes. A waiter of this crate keeps its place for
/// as long as it waits. If it crashes, waiters of Redisson behind it may wait until the lease is over that the server has
/// reported to them, because a release notifies only the first waiter of the queue.
///
/// If a process is killed while it waits, also by a signal that it does not handle, its entry stays in the two keys of
/// Redisson's queue until the next attempt or release on the key after the
/// [waiter timeout](crate::Builder::waiter_timeout). If nobody uses the key any more, both keys expire after one day. They
/// cannot expire earlier: Redisson does not extend them when one of its own waiters joins the queue, and that waiter could
/// wait for ever if the queue expired. Redisson itself leaves these keys without an expiry. A process that drops its waiting
/// acquisitions before it ends, for example by [`Client::close`](crate::Client::close), leaves nothing.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.fair_lock("order:42");
/// let (one, two) = tokio::join!(
///     lock.acquire().run(async { std::time::Instant::now() }),
///     lock.acquire().run(async { std::time::Instant::now() }),
/// );
/// assert!(one? <= two?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FairLock {
    handle: Handle,
}

impl FairLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Acquires the lock. Await the result for a guard, or [run](Acquire::run) a future under the lock.
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
    /// let guard = client.fair_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free and has no waiters, in one round trip and without joining the queue. Returns
    /// `None` if another owner holds the lock or waits for it.
    ///
    /// # Errors
    /// The errors of [`Acquire`], except [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// If the future is dropped, a hold that was granted in the meantime is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.fair_lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        self.acquire().try_now()
    }

    /// Returns whether any owner holds the lock; see [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
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
    /// let lock = client.fair_lock("order:42");
    /// assert!(!lock.is_locked().await?);
    ///
    /// let guard = lock.acquire().lease(Duration::from_secs(10)).await?;
    /// assert!(lock.is_locked().await?);
    /// assert!(lock.holders().await?[0].owner.starts_with(&guard.owner().to_string()));
    /// assert_eq!(lock.hold_count().await?, 1);
    /// assert!(lock.remaining_lease().await?.is_some_and(|left| left <= Duration::from_secs(10)));
    ///
    /// assert!(lock.force_release().await?);
    /// assert!(!lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.handle.is_locked().await
    }

    /// Returns the owners that hold the lock, each with the number of times it has entered; see
    /// [`Lock::holders`](crate::Lock::holders).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](FairLock::is_locked).
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.holders().await
    }

    /// Returns how many times the lock is entered, over all its holders; 0 if there is none.
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](FairLock::is_locked).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        self.handle.hold_count().await
    }

    /// Returns how long the lock stays held if it is neither renewed nor released; see
    /// [`Lock::remaining_lease`](crate::Lock::remaining_lease).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](FairLock::is_locked).
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.handle.remaining_lease().await
    }

    /// Frees the lock, no matter who holds it, and returns whether it was held; see
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed.
    ///
    /// # Examples
    /// See [`is_locked`](FairLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<FairLock> for Member {
    fn from(lock: FairLock) -> Self {
        Self::new(lock.handle)
    }
}

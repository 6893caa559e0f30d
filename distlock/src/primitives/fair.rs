//! The fair lock: Redisson's `RLock` of `getFairLock`.

use std::time::Duration;

use crate::acquire::handle::{Handle, Holder};
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::Member;

/// A lock that is granted in the order of arrival, among all clients; made by
/// [`Client::fair_lock`](crate::Client::fair_lock).
///
/// Its waiters stand in a queue in the server, one behind the other, whichever process they are of. None is overtaken:
/// neither by one that comes just when the lock is released, nor by [`try_acquire`](FairLock::try_acquire), nor by a
/// hand-over inside a client. So each grant costs round trips, and [`Lock`](crate::Lock) is much faster where order does
/// not matter.
///
/// * Each waiter is woken by a message of its own, and gives a sign of life now and then.
/// * One that gives up, times out or is dropped leaves the queue at once.
/// * One whose process died delays those behind it once, by at most the
///   [waiter timeout](crate::Builder::waiter_timeout), and not once for each that died.
/// * A waiter that could not give signs for that long has lost its place, and waits on from the last one.
///
/// All else is as with [`Lock`](crate::Lock): the watchdog, re-entry from inside its scope (which does not queue), loss.
/// In the server its holds are a lock's, so both kinds exclude each other on one key; but a plain lock does not queue
/// and wakes none of these waiters, so one key should have one kind.
///
/// After Redisson's `RedissonFairLock`, on the same keys, fields and channels: waiters of both stand in one queue. Places
/// of Redisson's waiters last five minutes; ours are kept fresh, and last as long as they wait.
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

    /// Acquires the lock; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.fair_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free and nobody waits for it: one round trip, no waiting, no place in the queue. `None`
    /// where another holds it or stands before.
    ///
    /// # Errors
    /// Those of [`Acquire`], but not [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what was granted meanwhile.
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
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
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

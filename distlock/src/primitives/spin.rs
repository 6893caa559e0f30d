//! The spin lock: Redisson's `RLock` of `getSpinLock`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::config::{Backoff, SPIN_BACKOFF};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::Member;
use crate::resource::owner::Holder;

/// A lock whose waiters poll the server instead of subscribing to messages; made by
/// [`Client::spin_lock`](crate::Client::spin_lock).
///
/// Use it where subscriptions are too expensive, and for locks that are held only briefly. A waiter pauses between two
/// attempts. The pause grows from 1 ms to 128 ms, or as set by [`backoff`](SpinLock::backoff): it doubles after each
/// attempt, and the waiter sleeps for a random time between half of it and all of it. Of the waiters of one client only
/// the first polls.
///
/// In all other respects it behaves like [`Lock`](crate::Lock), and in the server it is the same lock. Unlike Redisson's
/// spin lock it publishes its releases, so that waiters of other kinds of lock on the same key are woken.
///
/// The lock corresponds to Redisson's `RedissonSpinLock` and uses the same keys and fields.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let sold = client.spin_lock("order:42").acquire().run(async { "sold" }).await?;
/// assert_eq!(sold, "sold");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SpinLock {
    handle: Handle,
}

impl SpinLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Sets the first and the longest pause of a waiter between two attempts.
    ///
    /// A `first` below 1 ms is raised to 1 ms, and a `longest` below `first` to `first`. The pauses also apply when the
    /// lock is part of a [multi-lock](crate::MultiLock::of).
    ///
    /// # Errors
    /// When an acquisition is awaited, [`Error::InvalidConfig`] for pauses of more than a year.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let lock = client.spin_lock("tick").backoff(Duration::from_millis(5), Duration::from_secs(1));
    /// lock.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        let first = first.max(SPIN_BACKOFF.first);
        let longest = longest.max(first);
        self.handle.set_backoff(Backoff { first, longest });
        self
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
    /// let guard = client.spin_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free, in one round trip and without waiting. Returns `None` if another owner holds it.
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
    /// let lock = client.spin_lock("order:42");
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
    /// let lock = client.spin_lock("order:42");
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
    /// See [`is_locked`](SpinLock::is_locked).
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
    /// See [`is_locked`](SpinLock::is_locked).
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
    /// See [`is_locked`](SpinLock::is_locked).
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
    /// See [`is_locked`](SpinLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<SpinLock> for Member {
    fn from(lock: SpinLock) -> Self {
        Self::new(lock.handle)
    }
}

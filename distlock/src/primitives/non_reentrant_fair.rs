//! The non-reentrant fair lock: Redisson's `RLock` of `getNonReentrantFairLock`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::Member;
use crate::resource::owner::Holder;

/// A lock that is granted in the order of arrival and cannot be entered again inside its own scope; made by
/// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock).
///
/// It behaves like [`FairLock`](crate::FairLock), with one difference: acquiring it again inside its own scope, or with
/// [`Guard::reenter`], fails at once with [`Error::Deadlock`]. In the server it is the same lock with the same queue.
///
/// The lock corresponds to Redisson's `RedissonNonReentrantFairLock` and uses the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.non_reentrant_fair_lock("order:42");
/// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
/// assert!(again.unwrap_err().is_permanent());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct NonReentrantFairLock {
    handle: Handle,
}

impl NonReentrantFairLock {
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
    /// let guard = client.non_reentrant_fair_lock("order:42").acquire().await?;
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
    /// let lock = client.non_reentrant_fair_lock("order:42");
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
    /// let lock = client.non_reentrant_fair_lock("order:42");
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
    /// See [`is_locked`](NonReentrantFairLock::is_locked).
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
    /// See [`is_locked`](NonReentrantFairLock::is_locked).
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
    /// See [`is_locked`](NonReentrantFairLock::is_locked).
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
    /// See [`is_locked`](NonReentrantFairLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<NonReentrantFairLock> for Member {
    fn from(lock: NonReentrantFairLock) -> Self {
        Self::new(lock.handle)
    }
}

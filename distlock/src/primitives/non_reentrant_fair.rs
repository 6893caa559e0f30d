//! The non-reentrant fair lock: Redisson's `RLock` of `getNonReentrantFairLock`.

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::inspect::inspection;

/// A lock that is granted in the order of arrival and never entered twice; made by
/// [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock).
///
/// As [`FairLock`](crate::FairLock) in all but one: acquiring it again inside its own scope, or by [`Guard::reenter`], is
/// [`Error::Nested`] at once. In the server it is the same lock with the same queue.
///
/// After Redisson's `RedissonNonReentrantFairLock`, on the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.non_reentrant_fair_lock("order:42");
/// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
/// assert!(again.unwrap_err().is_misuse());
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

    /// Acquires the lock; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.non_reentrant_fair_lock("order:42").acquire().await?;
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
    /// let lock = client.non_reentrant_fair_lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }
}

inspection!(
    NonReentrantFairLock,
    "client.non_reentrant_fair_lock(\"order:42\")"
);

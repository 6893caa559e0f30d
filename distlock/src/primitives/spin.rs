//! The spin lock: Redisson's `RLock` of `getSpinLock`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::config::{Backoff, SPIN_BACKOFF};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::inspect::inspection;

/// A lock whose waiters ask again and again; made by [`Client::spin_lock`](crate::Client::spin_lock).
///
/// For servers and networks where a subscription costs too much, and locks that are held for a moment: nothing is
/// subscribed. A waiter pauses between two attempts, twice as long each time, at random between half of that and all of
/// it: from 1 ms to 128 ms, unless [`backoff`](SpinLock::backoff) says otherwise. Of the waiters in one client only the
/// first asks.
///
/// All else is as with [`Lock`](crate::Lock), and in the server it is the same lock. Its release is published as well,
/// other than Redisson's, so that those who wait by messages for the same key are woken.
///
/// After Redisson's `RedissonSpinLock`.
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

    /// The first and the longest pause of a waiter between two attempts: at least 1 ms, and `longest` not below `first`.
    /// What is less is raised to that. A [multi-lock](crate::MultiLock::of) that this lock goes into keeps to it.
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

    /// Acquires the lock; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.spin_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free: one round trip, no waiting. `None` where another holds it.
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
    /// let lock = client.spin_lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }
}

inspection!(SpinLock, "client.spin_lock(\"order:42\")");

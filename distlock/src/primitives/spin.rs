//! The spin lock: Redisson's `RLock` of `getSpinLock`.

use std::time::Duration;

use crate::config::{Backoff, SPIN_BACKOFF};
use crate::primitives::Lock;
use crate::primitives::kinds::Spin;

/// A lock whose waiters poll the server instead of subscribing to messages; made by
/// [`Client::spin_lock`](crate::Client::spin_lock).
///
/// Use it where subscriptions are too expensive, and for locks that are held only briefly. A waiter pauses between two
/// attempts. The pause grows from 1 ms to 128 ms, or as set by [`backoff`](SpinLock::backoff): it doubles after each
/// attempt, and the waiter sleeps for a random time between half of it and all of it. Of the waiters of one client only
/// the first polls.
///
/// The server does not know who polls. So a client whose own waiters use the lock all the time leaves it free for one longest pause, in
/// which each waiter of another client with the same pauses attempts. It does so at intervals of two longest pauses, or of eight pauses if
/// nobody took the key the last time. A client that is alone therefore loses a ninth of its time. Use the same `backoff` in all processes,
/// and no other kind of lock for the same key: a client with another kind in use all the time leaves nothing to those that poll, and so does
/// a single task that acquires and releases without a pause.
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
#[doc(alias = "RedissonSpinLock")]
pub type SpinLock = Lock<Spin>;

impl Lock<Spin> {
    /// Sets the first and the longest pause of a waiter between two attempts.
    ///
    /// A `first` below 1 ms is raised to 1 ms, and a `longest` below `first` to `first`. The pauses also apply when the
    /// lock is part of a [multi-lock](crate::MultiLock::of).
    ///
    /// # Errors
    /// When an acquisition is awaited, [`Error::InvalidConfig`](crate::Error::InvalidConfig) for pauses of more than a year.
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
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        let first = first.max(SPIN_BACKOFF.first);
        let longest = longest.max(first);
        self.handle.set_backoff(Backoff { first, longest });
        self
    }
}

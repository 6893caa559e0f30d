//! The reentrant lock: Redisson's `RLock`.

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::inspect::inspection;

/// A reentrant lock on one key; made by [`Client::lock`](crate::Client::lock).
///
/// A handle: it does no I/O by itself, is cheap to clone, and any number of handles name one lock. At most one owner
/// holds it at a time, among all clients of the same server, Redisson's included.
///
/// * **Reentrant inside its own critical section**: acquiring it again within [`Guard::scope`] or
///   [`Acquire::run`] enters the same hold. Threads and tasks are no owners here: two tasks, or two branches of a
///   `join!`, exclude each other.
/// * **Kept by a watchdog**: without a [lease](Acquire::lease) the hold is renewed while its guard lives, every third of
///   30 s by default ([`watchdog_timeout`](crate::Builder::watchdog_timeout)). When the process dies, the lease ends.
/// * **Not fair between processes**: local waiters are served in their order, and bounded runs of them alternate with
///   other processes.
///
/// Where a write must not happen after the lock was lost, whatever happens to this process, the store has to compare a
/// fencing token; no lock can do that by itself.
///
/// After Redisson's `RedissonLock`, on the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.lock("order:42");
/// let sold = lock.acquire().run(async { "sold" }).await?;
/// assert_eq!(sold, "sold");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    handle: Handle,
}

impl Lock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Acquires the lock; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
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
    /// let lock = client.lock("report");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }
}

inspection!(Lock, "client.lock(\"order:42\")");

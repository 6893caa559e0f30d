//! The fair lock: Redisson's `RLock` of `getFairLock`.

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::inspect::inspection;

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
}

inspection!(FairLock, "client.fair_lock(\"order:42\")");

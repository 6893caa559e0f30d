//! The read/write lock: Redisson's `RReadWriteLock`.

use crate::acquire::handle::Handle;
use crate::error::Error;
use crate::primitives::kinds::{Read, Write};
use crate::primitives::{Lock, UntilFree};
use crate::resource::kind::Kind;

/// A lock on one key that admits any number of readers or one writer; made by
/// [`Client::rw_lock`](crate::Client::rw_lock).
///
/// It has two sides, [`read`](RwLock::read) and [`write`](RwLock::write), which share their data in the server. While there are
/// readers, no owner can write. While there is a writer, no other owner can read or write. This applies to all clients of the
/// same server, including those of Redisson.
///
/// * **A read inside its own write is admitted.** A read lock that is acquired inside the scope of a write lock's guard is
///   a separate hold, which may outlive the write lock. When the write lock is released, the reader stays and other
///   readers are admitted (a downgrade).
/// * **A write inside its own read** would wait for itself, and fails at once with [`Error::Deadlock`]. The same error is
///   returned if the read itself is inside a write. Several branches of a scope can read at the same time, for example those of a
///   `join!`. If two of them could write inside their reads, each would wait for the other's read to end. Acquire the write lock
///   again before the read, or after it.
/// * **Each reader has its own lease.** If a reader crashes, it blocks writers until its lease expires; the renewals of other
///   readers do not extend it. Over Redis there is one exception. A release checks the other readers only if there are at most
///   eight, so that it takes the same time with thousands of readers. If more than eight readers remain and all of them crash,
///   they also block writers until the longest lease of the released readers, or of the write lock around them, has ended.
/// * **Neither side starves the other.** A waiting writer blocks new readers until it has written. After a writer, the
///   readers that waited for it are admitted before the next writer.
///
/// A task can deadlock with a waiting writer. This happens if the task holds the read lock and waits for another task
/// that has to acquire the read lock too: the waiting writer blocks that task. To prevent this, carry the scope over to
/// the other task with [`inherit`](crate::inherit), or give its acquisition a [`wait`](crate::Acquire::wait).
///
/// # How readers and writers alternate
/// A waiting writer sets a mark in a separate key. The mark expires after the
/// [`waiter_timeout`](crate::Builder::waiter_timeout), 5 s by default, and the writer sets it again each time a third of that has
/// passed. While the mark exists, new readers are refused, except inside a write lock. When the writer gives up, the mark is
/// removed and the readers are woken. The mark is also removed when a writer is granted the lock.
///
/// A refused reader sets another mark. If that mark exists when a write lock is released, the server admits readers and refuses
/// waiting writers for 20 ms. These writers ask again as soon as the 20 ms are over. A reader therefore waits for one writer, or
/// for up to 50 ms in which writers of one client hand the lock over to each other. A writer waits for the current readers and
/// for other writers; writers of different clients have no particular order. A reader that needs more than the 20 ms to reach the
/// server may miss its chance, and then waits for another writer.
///
/// # Redisson
/// The lock corresponds to Redisson's `RedissonReadLock` and `RedissonWriteLock` and uses the same keys, fields and
/// channels. Readers and writers of both libraries exclude each other in the same way, with these differences:
///
/// * Redisson's clients ignore the marks. While a writer waits, the server still admits its readers to a lock that others
///   read, so a steady stream of them can starve writers of both libraries; set a [`wait`](crate::Acquire::wait).
///   Redisson's writers do not yield to waiting readers.
/// * The threads of Redisson wake more slowly than waiters of this crate. Writers that keep the lock busy leave it to them after each
///   turn; see [`sharing_with_redisson`](crate::guide::sharing_with_redisson#a-busy-lock).
/// * Redisson does not publish a downgrade. Readers that wait for such a writer are not woken; they are admitted when
///   the lease that the server has reported to them expires.
/// * The watchdog of a Redisson reader shortens longer leases of other readers. If Redisson reads the lock, give no read lock a
///   longer [lease](crate::Acquire::lease) than Redisson's watchdog timeout. A multi-lock of Redisson with a lease shortens
///   those of all readers of its members; see [`sharing_with_redisson`](crate::guide::sharing_with_redisson#what-has-to-agree).
/// * In this crate, the leases of a writer do not add up, and a reader inside a write lock has its own owner.
/// * A Java thread can write inside a read inside its own write, because a thread does one thing at a time. In this crate
///   that is an [`Error::Deadlock`].
///
/// The alternation follows phase-fair locks (Brandenburg and Anderson).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.rw_lock("report:42");
/// let shown = lock.read().acquire().run(async { "shown" }).await?;
/// let written = lock.write().acquire().run(async { "written" }).await?;
/// assert_eq!((shown, written), ("shown", "written"));
/// # Ok(()) }
/// ```
#[doc(alias = "RReadWriteLock")]
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.read().acquire()` or `.write().acquire()` and await it"]
pub struct RwLock {
    handle: Handle,
}

impl RwLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let lock = distlock::Client::in_memory().rw_lock("order:42");
    /// assert_eq!(lock.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        self.handle.key_text()
    }

    /// Returns the read side, which many owners can hold at the same time.
    ///
    /// # Examples
    /// See [`ReadLock`].
    pub fn read(&self) -> ReadLock {
        Lock::new(self.handle.of_kind(Kind::Read))
    }

    /// Returns the write side, which one owner holds alone.
    ///
    /// # Examples
    /// See [`WriteLock`].
    pub fn write(&self) -> WriteLock {
        Lock::new(self.handle.of_kind(Kind::Write))
    }

    /// Returns whether there is any reader or writer; see [`Lock::is_locked`](crate::Lock::is_locked).
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
    /// let client = distlock::Client::in_memory();
    /// let lock = client.rw_lock("report:42");
    /// let _guard = lock.write().acquire().await?;
    /// assert!(lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        // In this order: between the two calls a writer can become a reader, but a reader cannot become a writer.
        Ok(self.write().is_locked().await? || self.read().is_locked().await?)
    }

    /// Waits until there is neither a reader nor a writer, without acquiring the lock; see
    /// [`Lock::until_free`](crate::Lock::until_free). Await the result.
    ///
    /// # Errors
    /// When awaited, the errors of [`UntilFree`](UntilFree#errors).
    ///
    /// # Cancel safety
    /// The same as [`UntilFree`](UntilFree#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.rw_lock("report:42");
    /// let guard = lock.read().acquire().await?;
    /// let busy = lock.until_free().wait(std::time::Duration::ZERO).await;
    /// assert!(busy.unwrap_err().is_busy());
    ///
    /// guard.release().await?;
    /// lock.until_free().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn until_free(&self) -> UntilFree {
        self.write().until_free()
    }

    /// Frees the lock, no matter who holds it, and returns whether it was held.
    ///
    /// It calls [`WriteLock::force_release`], and [`ReadLock::force_release`] if there was no writer.
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked). After [`Error::Unavailable`] the lock may or may not have been freed. A second
    /// call frees the owner that holds it by then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed. A request that was sent before is carried out all the same,
    /// and frees the owner that holds the lock by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.rw_lock("report:42");
    /// let _guard = lock.read().acquire().await?;
    /// assert!(lock.force_release().await?);
    /// assert!(!lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool, Error> {
        // In this order, as in `is_locked`.
        Ok(self.write().force_release().await? || self.read().force_release().await?)
    }
}

/// The read side of an [`RwLock`]; made by [`RwLock::read`].
///
/// Any number of owners can hold it at the same time, if no owner holds the [`WriteLock`]. Waiting, renewal and release
/// work as with [`Lock`](crate::Lock), with these differences:
///
/// * Readers of one client do not queue behind each other, and nothing is handed over between them.
/// * Branches of one scope of a read lock can also read at the same time.
/// * One owner enters the lock at most 1000 times at once. If there are more than 10 000 readers, the methods that inspect the
///   lock return 10 000 of them.
/// * The methods that inspect the lock, such as [`holders`](ReadLock::holders) and
///   [`remaining_lease`](ReadLock::remaining_lease), are about readers only, including those inside a write lock. The
///   remaining lease is that of the reader with the most time left.
/// * [`force_release`](ReadLock::force_release) ends all readers if there is no writer, and otherwise does nothing, as in
///   Redisson. [`WriteLock::force_release`] ends the readers inside a write lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let read = client.rw_lock("report:42").read();
/// let (_one, _two) = (read.acquire().await?, read.acquire().await?);
/// assert_eq!(read.holders().await?.len(), 2);
/// # Ok(()) }
/// ```
pub type ReadLock = Lock<Read>;

/// The write side of an [`RwLock`]; made by [`RwLock::write`].
///
/// At most one owner holds it at a time. Meanwhile no owner holds the [`ReadLock`], except inside the writer's own
/// scope. Waiting, renewal and release work as with [`Lock`](crate::Lock), with these differences:
///
/// * A read lock that is acquired inside its [scope](crate::Guard::scope) may outlive the write lock. The lock is then a read
///   lock.
/// * The methods that inspect the lock, such as [`holders`](WriteLock::holders), are about the writer only. The server
///   stores it as `<owner>:write`.
/// * [`force_release`](WriteLock::force_release) ends the writer and the readers inside its write lock. It does nothing
///   if there is no writer, as in Redisson.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.rw_lock("report:42");
/// let writes = lock.write().acquire().await?;
/// let reads = writes.try_scope(lock.read().acquire().into_future()).await?;
/// writes.release().await?; // a downgrade: from here on others can read
/// let other = lock.read().try_acquire().await?;
/// assert!(reads.is_held() && other.is_some());
/// # Ok(()) }
/// ```
pub type WriteLock = Lock<Write>;

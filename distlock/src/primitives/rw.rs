//! The read/write lock: Redisson's `RReadWriteLock`.

use std::time::Duration;

use crate::acquire::handle::{Handle, Holder};
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::kind::Kind;
use crate::primitives::Member;

/// A lock on one key that many may read or one may write; made by [`Client::rw_lock`](crate::Client::rw_lock).
///
/// Two locks on the same data: [`read`](RwLock::read) and [`write`](RwLock::write). While anyone reads nobody writes, and
/// while one writes nobody else reads or writes, among all clients of the same server, Redisson's included.
///
/// * **Reading inside one's own write** is let in: a read lock that is acquired within the scope of a write lock's guard
///   is a hold of its own, which may outlive the write. When the write ends, the lock goes on as a read lock (a downgrade),
///   and other readers come in.
/// * **Writing inside one's own read** would wait for itself, and is [`Error::Deadlock`] at once.
/// * **Each reader has a lease of its own.** One that dies keeps writers out until its lease ends, and no longer; others'
///   renewals do not keep it alive.
/// * **Neither side starves the other.** A writer that waits keeps further readers out until it had its turn, and after a
///   writer the readers who waited for its end go before the next one. So a task that reads, and meanwhile waits for
///   another task that is yet to read, may wait for a writer between the two, for ever: carry the scope over with
///   [`inherit`](crate::inherit), or give the second a [`wait`](Acquire::wait).
///
/// # Turns
/// A writer of this crate's clients that is refused and waits notes that in a key of its own beside the lock, for 5 s, and
/// again every third of that. While the note stands, readers of these clients are refused, but for those who are in
/// already or come from inside a write lock. It goes when a writer is granted the lock and when its writer gives up,
/// which wakes the readers; where its process died, after the 5 s.
///
/// A reader that is refused leaves a mark beside the lock. Where a write lock is released and the mark stands, readers
/// have 20 ms to come in, in which a writer that waits is refused. So readers and writers alternate: a reader waits for
/// one writer, or for up to 50 ms in which writers of one client hand the lock over among themselves; a writer waits for
/// those who read already, and for other writers, who are in no order between clients. A reader whose way to the server
/// takes longer than the 20 ms has to be lucky.
///
/// Redisson knows of no turns. Its readers come in beside other readers also while a writer waits, so a steady stream
/// of *them* keeps writers out, ours as well as its own, and the [`wait`](Acquire::wait) is what ends that. Its writers
/// heed no readers' turn. Who excludes whom is the same for all. And its downgrade tells nobody: readers who wait for
/// such a writer, ours as well as its own, come in when the lease that they were told is over, and not at once.
///
/// After Redisson's `RedissonReadLock` and `RedissonWriteLock`, on the same keys, fields and channels, except that: leases
/// of a writer do not add up, a reader inside a write has an owner of its own, and the end of a write that goes on as a
/// read is published. The turns after phase-fair locks (Brandenburg and Anderson).
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
#[derive(Clone, Debug)]
pub struct RwLock {
    handle: Handle,
}

impl RwLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// The lock that many may have at once.
    /// # Examples
    /// See [`ReadLock`].
    pub fn read(&self) -> ReadLock {
        ReadLock {
            handle: self.handle.of_kind(Kind::Read),
        }
    }

    /// The lock that one has alone.
    /// # Examples
    /// See [`WriteLock`].
    pub fn write(&self) -> WriteLock {
        WriteLock {
            handle: self.handle.of_kind(Kind::Write),
        }
    }

    /// Does anyone read or write? The answer is old when it arrives.
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
        // A writer may become a reader between the two, but no reader a writer.
        Ok(self.write().is_locked().await? || self.read().is_locked().await?)
    }

    /// Frees the lock, whoever reads or writes; whether anyone did. Use it to repair a system by hand,
    /// not as a part of normal work.
    ///
    /// That is [`WriteLock::force_release`] and, where nobody writes, [`ReadLock::force_release`].
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed.
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
        Ok(self.write().force_release().await? || self.read().force_release().await?)
    }
}

/// The read half of an [`RwLock`]; made by [`RwLock::read`].
///
/// Any number of owners have it at once, while none has the [`WriteLock`]. All that waits, renews and ends is as with
/// [`Lock`](crate::Lock), with these differences:
///
/// * Readers of one client do not stand behind each other; nothing is handed over between them.
/// * Branches of one scope of a read lock read at the same time, too.
/// * What is asked ([`holders`](ReadLock::holders), [`remaining_lease`](ReadLock::remaining_lease) and the others) is
///   about readers alone, those inside a write lock included; the lease is that of the reader who has most left.
/// * [`force_release`](ReadLock::force_release) ends all readers where nobody writes, and nothing else, as Redisson has
///   it: readers inside a write lock end with [`WriteLock::force_release`].
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
#[derive(Clone, Debug)]
pub struct ReadLock {
    handle: Handle,
}

impl ReadLock {
    /// Acquires the lock to read; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.rw_lock("report:42").read().acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if nobody writes, and no writer waits: one round trip, no waiting. `None` where it cannot be
    /// had now.
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
    /// let lock = client.rw_lock("report:42");
    /// let _writes = lock.write().acquire().await?;
    /// assert!(lock.read().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }

    /// Returns whether any owner holds the read lock; see [`Lock::is_locked`](crate::Lock::is_locked).
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
    /// let lock = client.rw_lock("report:42").read();
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

    /// Returns the readers, each with the number of times it has entered; see
    /// [`Lock::holders`](crate::Lock::holders).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](ReadLock::is_locked).
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.holders().await
    }

    /// Returns how many times the lock is entered, over all readers; 0 if there are none.
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](ReadLock::is_locked).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        self.handle.hold_count().await
    }

    /// Returns how long the reader with the longest lease stays if it is neither renewed nor released; see
    /// [`Lock::remaining_lease`](crate::Lock::remaining_lease).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](ReadLock::is_locked).
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.handle.remaining_lease().await
    }

    /// Ends all readers if nobody writes, and returns whether there were any; see
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed.
    ///
    /// # Examples
    /// See [`is_locked`](ReadLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<ReadLock> for Member {
    fn from(lock: ReadLock) -> Self {
        Self::new(lock.handle)
    }
}

/// The write half of an [`RwLock`]; made by [`RwLock::write`].
///
/// At most one owner has it at a time, while nobody has the [`ReadLock`], but for those whom its own scope lets in. All
/// that waits, renews and ends is as with [`Lock`](crate::Lock), with these differences:
///
/// * A read lock that is acquired in its [scope](Guard::scope) may outlive it, and the lock is a read lock then.
/// * What is asked ([`holders`](WriteLock::holders) and the others) is about the writer alone, who stands in the server
///   as `<owner>:write`.
/// * [`force_release`](WriteLock::force_release) ends the writer and the readers that it has let in, and nothing where
///   nobody writes, as Redisson has it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.rw_lock("report:42");
/// let writes = lock.write().acquire().await?;
/// let reads = writes.scope(lock.read().acquire().into_future()).await??;
/// writes.release().await?; // a downgrade: others may read from here on
/// let other = lock.read().try_acquire().await?;
/// assert!(reads.is_held() && other.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WriteLock {
    handle: Handle,
}

impl WriteLock {
    /// Acquires the lock to write; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.rw_lock("report:42").write().acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if nobody reads or writes: one round trip, no waiting. `None` where another holds it.
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
    /// let write = client.rw_lock("report:42").write();
    /// let first = write.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(write.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }

    /// Returns whether an owner holds the write lock; see [`Lock::is_locked`](crate::Lock::is_locked).
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
    /// let lock = client.rw_lock("report:42").write();
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

    /// Returns the writer, each with the number of times it has entered; see
    /// [`Lock::holders`](crate::Lock::holders).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](WriteLock::is_locked).
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.holders().await
    }

    /// Returns how many times the lock is entered, over all entries of its writer; 0 if there is none.
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](WriteLock::is_locked).
    pub async fn hold_count(&self) -> Result<u64, Error> {
        self.handle.hold_count().await
    }

    /// Returns how long the write lock stays held if it is neither renewed nor released; see
    /// [`Lock::remaining_lease`](crate::Lock::remaining_lease).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`is_locked`](WriteLock::is_locked).
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.handle.remaining_lease().await
    }

    /// Ends the writer and the readers inside its write lock, and returns whether there was a writer; see
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed.
    ///
    /// # Examples
    /// See [`is_locked`](WriteLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<WriteLock> for Member {
    fn from(lock: WriteLock) -> Self {
        Self::new(lock.handle)
    }
}

//! The lock on one key, of every kind: Redisson's `RLock`.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::primitives::Member;
use crate::primitives::kinds::{LockKind, NonReentrant, Reentrant};
use crate::primitives::until_free::UntilFree;
use crate::resource::owner::Holder;

/// A lock on one key. `Lock` alone is the reentrant one, made by [`Client::lock`](crate::Client::lock).
///
/// At most one owner holds the lock at a time, among all clients of the same server, including those of Redisson. (The read
/// side of a read/write lock has many owners.) This type is a handle: it is cheap to clone, does no I/O on its own, and all
/// handles with the same key are the same lock.
///
/// # Kinds
/// The type parameter is the kind of the lock. All kinds have the same methods, except that a spin lock also has `backoff`.
/// [`kinds`](crate::kinds) are the types of the parameter. Where the kind is a setting, use a [`Mode`](crate::Mode).
///
/// | type | made by | what is different |
/// | --- | --- | --- |
/// | `Lock`, the same as `Lock<Reentrant>` | [`Client::lock`](crate::Client::lock) | the default, as described below |
/// | [`NonReentrantLock`](crate::NonReentrantLock) | [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock) | its owner gets an error if it acquires the lock again |
/// | [`FairLock`](crate::FairLock) | [`Client::fair_lock`](crate::Client::fair_lock) | granted in the order of arrival, among all clients |
/// | [`NonReentrantFairLock`](crate::NonReentrantFairLock) | [`Client::non_reentrant_fair_lock`](crate::Client::non_reentrant_fair_lock) | a fair lock whose owner gets an error if it acquires the lock again |
/// | [`SpinLock`](crate::SpinLock) | [`Client::spin_lock`](crate::Client::spin_lock) | waiters poll; [`backoff`](crate::SpinLock::backoff) sets their pauses |
/// | [`FencedLock`](crate::FencedLock) | [`Client::fenced_lock`](crate::Client::fenced_lock) | each grant has a token: its guard is a [`FencedGuard`](crate::FencedGuard) |
/// | [`ReadLock`](crate::ReadLock), [`WriteLock`](crate::WriteLock) | [`Client::rw_lock`](crate::Client::rw_lock) | the two sides of a read/write lock: many readers or one writer |
///
/// # The reentrant lock
/// * **Reentrant inside its scope.** Acquiring the lock again inside [`Guard::scope`](crate::Guard::scope) or
///   [`Acquire::run`] enters the same hold. A thread or a task is not an owner: two tasks exclude each other, and so do two
///   branches of a `join!`.
/// * **Renewed by a watchdog.** Without a fixed [lease](Acquire::lease) the hold is renewed for as long as its guard
///   exists: by default it has a lease of 30 s and is renewed every 10 s
///   ([`watchdog_timeout`](crate::Builder::watchdog_timeout)). After a crash the lock is free when the lease expires.
/// * **Fair inside a client only.** The waiters of one client are served in the order of their arrival. After a bounded number of
///   grants, waiters of other processes can get the lock. Processes take turns, but without the strict order of arrival of a
///   [fair lock](crate::FairLock).
///
/// No lock can prevent a write by a process that has lost the lock without noticing yet. If such a write must not happen,
/// use a [`FencedLock`](crate::FencedLock) and a store that compares fencing tokens.
///
/// The lock corresponds to Redisson's `RedissonLock` and uses the same keys, fields and channels.
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
#[doc(alias("RLock", "Mutex"))]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct Lock<K: LockKind = Reentrant> {
    pub(super) handle: Handle,
    // A function pointer, so that the lock is `Send`, `Sync` and `Unpin` for every kind.
    kind: PhantomData<fn() -> K>,
}

/// A lock that cannot be entered again inside its own scope; made by
/// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock).
///
/// It behaves like [`Lock`](crate::Lock), with one difference: acquiring it again inside its own scope, or with
/// [`Guard::reenter`](crate::Guard::reenter), fails at once with [`Error::Deadlock`](crate::Error::Deadlock). Use it if
/// entering twice is a mistake that should be reported.
///
/// In the server it is stored like a `Lock`, so both kinds exclude each other on one key.
///
/// The lock corresponds to Redisson's `RedissonNonReentrantLock` and uses the same keys, fields and channels.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.non_reentrant_lock("order:42");
/// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
/// assert!(again.unwrap_err().is_permanent());
/// # Ok(()) }
/// ```
pub type NonReentrantLock = Lock<NonReentrant>;

impl<K: LockKind> Lock<K> {
    /// The lock of a handle of this kind.
    pub(crate) fn new(handle: Handle) -> Self {
        debug_assert_eq!(handle.kind, K::KIND);
        Self {
            handle,
            kind: PhantomData,
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let lock = distlock::Client::in_memory().lock("order:42");
    /// assert_eq!(lock.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        self.handle.key_text()
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
    /// let guard = client.lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    #[track_caller]
    pub fn acquire(&self) -> Acquire<K::Guard> {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free, in one round trip and without waiting. Returns `None` if another owner holds it.
    ///
    /// For two kinds, waiters count as well. A [fair lock](crate::FairLock) is not free while others wait in its queue, which
    /// this method does not join. A [read lock](crate::ReadLock) is free while there are readers, but not while a writer
    /// holds the lock or waits for it.
    ///
    /// Keep the guard for as long as the work lasts: `if let Some(_guard) = lock.try_acquire().await? { .. }`. With
    /// `if lock.try_acquire().await?.is_some() { .. }` the guard is dropped before the block begins, so the block runs without the lock,
    /// and after `lock.try_acquire().await?;` all further code does. The compiler does not warn of either.
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
    /// let lock = client.lock("report");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "try_lock")]
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<K::Guard>, Error>> + Send + use<K> {
        self.acquire().try_now()
    }

    /// Waits until nobody holds the lock, without acquiring it. Await the result.
    ///
    /// Use it where one task does some work and all others only need the result. The task that gets the lock by
    /// [`try_acquire`](Lock::try_acquire) does the work. The others wait here, and then read the result, all at the same time. If
    /// each of them acquired the lock, they would take turns.
    ///
    /// * **When it completes.** The wait completes when, at some moment after it began, nobody held the lock: the lock was
    ///   released, or its lease ended after a crash. Another owner may hold the lock by then. The wait therefore ends even if
    ///   many processes take the lock in turn. It may also end when another client [attaches](crate::Client::attach) a detached hold:
    ///   the new owner is taken for the next one, although the lock was not free in between. A thread of Redisson is the same owner
    ///   each time: if it takes the lock again before the client has looked, the wait goes on.
    /// * **Shared by all waiters.** All waiters of a client share one subscription and the same checks of the key. The server
    ///   keeps no record of them. They do not join the queue of a [fair lock](crate::FairLock).
    /// * **Any kind.** The wait covers all kinds of lock that share the data of the key. A read/write lock is free when there are
    ///   neither readers nor a writer, for both of its sides. A lock that [stays taken](crate::Acquire::hold_at_least) after its
    ///   hold is free when that time is over. A hand-over inside a client does not free the lock.
    /// * **Several keys.** A [`MultiLock`](crate::MultiLock) has no such wait, because there may never be a moment at which all of its
    ///   keys are free. Wait for each key in turn.
    /// * **Messages.** The message of a release completes the wait. In case a message is missed, the client checks the key every
    ///   5 s, and when the holder's lease should end. Redisson's fair lock and spin lock send no message to such a waiter.
    ///
    /// A [`snapshot`](crate::Client::snapshot) does not list these waits, and they do not count towards the waiter limits.
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
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("report");
    /// let guard = lock.acquire().await?;
    /// let busy = lock.until_free().wait(Duration::from_millis(10)).await;
    /// assert!(busy.unwrap_err().is_busy());
    ///
    /// guard.release().await?;
    /// lock.until_free().await?;
    /// assert!(!lock.is_locked().await?); // it was not acquired
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn until_free(&self) -> UntilFree {
        UntilFree::new(self.handle.clone(), Location::caller())
    }

    /// Returns whether any owner holds the lock.
    ///
    /// For a [read lock](crate::ReadLock) this and the following methods are about the readers, and for a
    /// [write lock](crate::WriteLock) about the writer.
    ///
    /// The result is also `true` while a released lock stays taken by [`hold_at_least`](Acquire::hold_at_least).
    ///
    /// The answer describes the moment at which the server read it: the lock may be released or granted right after.
    ///
    /// # Errors
    /// * [`Error::Unavailable`]: the server did not answer.
    /// * [`Error::WrongType`]: the key holds a value that is not a lock of this kind.
    /// * [`Error::Denied`]: the server refused the command.
    /// * [`Error::InvalidKey`]: the key is empty or too long.
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert!(!client.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.handle.is_locked().await
    }

    /// Returns the owners that hold the lock, each with the number of times it has entered. An owner that has released the lock is
    /// among them until its minimum hold time is over; see [`Holder::is_released`].
    ///
    /// The counts of this client's own holds are exact. The server learns of a changed count a moment later, so the
    /// count of another client's hold may be out of date.
    ///
    /// # Errors
    /// The same as [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// let holders = lock.holders().await?;
    /// assert!(holders[0].owner.starts_with(&guard.owner().to_string()));
    /// # Ok(()) }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.handle.holders().await
    }

    /// Returns how many times the lock is entered, over all its holders; 0 if it is free. An owner that has released the lock counts
    /// as 1 until its [minimum hold time](Acquire::hold_at_least) is over.
    ///
    /// # Errors
    /// The same as [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// assert_eq!(lock.hold_count().await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn hold_count(&self) -> Result<u64, Error> {
        self.handle.hold_count().await
    }

    /// Returns how long the lock stays held if it is neither renewed nor released.
    ///
    /// The result is `None` if the lock is free, or if another program wrote its key without a time to live.
    ///
    /// # Errors
    /// The same as [`is_locked`](Lock::is_locked).
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
    /// let lock = client.lock("order:42");
    /// let _guard = lock.acquire().lease(Duration::from_secs(10)).await?;
    /// assert!(lock.remaining_lease().await?.is_some_and(|left| left <= Duration::from_secs(10)));
    /// # Ok(()) }
    /// ```
    #[doc(alias("remain_time_to_live", "ttl"))]
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.handle.remaining_lease().await
    }

    /// Frees the lock, no matter who holds it, and returns whether it was held.
    ///
    /// Use it to repair a system by hand, not as a part of normal work. Waiters are woken, and the next owner may enter
    /// while critical sections of the former owner still run:
    ///
    /// * The former holder learns of the loss within a round trip if its server tracks its key, which begins about a second after the
    ///   grant: see [`Builder::track_holds`](crate::Builder::track_holds). It learns of it within milliseconds as well if a waiter
    ///   of its own client listens for messages of the key.
    /// * Otherwise it learns of the loss at its next renewal, within a third of its lease. A guard with a fixed lease is not
    ///   renewed, and then learns of it when it releases, or when its lease ends.
    /// * A client hands its hold over from one of its tasks to the next. It verifies such a hold at the server every 10 ms. Tasks
    ///   that follow the former holder may therefore still run for about 10 ms and one round trip. Tasks that have ended by then
    ///   have returned `Ok`. The log says how many of them there may be.
    ///
    /// Use [fencing tokens](crate::Client::fenced_lock) if a store has to reject the writes of such sections.
    ///
    /// On a read/write lock, [`ReadLock`](crate::ReadLock) ends all readers, but only if there is no writer.
    /// [`WriteLock`](crate::WriteLock) ends the writer and the readers inside its write lock.
    ///
    /// The method deletes locks only, and never other data. A lock of another kind does not delete a read/write lock, and a side
    /// of a read/write lock does not delete a lock of another kind.
    ///
    /// # Errors
    /// The same as [`is_locked`](Lock::is_locked). After [`Error::Unavailable`] the lock may or may not have been freed. A second call frees
    /// the owner that holds it by then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been freed. A request that was sent before is carried out all the same,
    /// and frees the owner that holds the lock by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// assert!(lock.force_release().await?);
    /// assert!(!lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "force_unlock")]
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

// By hand, as `Debug` below: a derive would ask `K` for the same trait.
impl<K: LockKind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone())
    }
}

impl<K: LockKind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("handle", &self.handle)
            .finish()
    }
}

impl<K: LockKind> From<Lock<K>> for Member {
    fn from(lock: Lock<K>) -> Self {
        Self::new(lock.handle)
    }
}

//! The fenced lock: Redisson's `RFencedLock`.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use futures_core::Stream;

use crate::acquire::handle::{Handle, Holder};
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::stream::HoldStream;
use crate::guard::{Guard, Leased};
use crate::primitives::Member;

/// A lock that numbers its grants; made by [`Client::fenced_lock`](crate::Client::fenced_lock).
///
/// Each grant has a **fencing token** that is higher than every earlier one of the same key. Send it along with each
/// write, and have the store refuse a token below the highest it has seen: that stops also the write of a holder that
/// stood still past its lease, which no lock can do by itself.
///
/// Tokens grow across release, expiry, force-release and restarts of clients. They go on to grow where the server lost
/// the last one, or all data, or a replica took over that had not heard of the last grants: a new token is above the last
/// one that the server knows, at least the server's time in microseconds, and above each that this client has seen of the
/// key (of the 4096 keys that it used last). They are not without gaps. Entering the lock again is the same grant and has
/// the same token.
///
/// What that cannot make up for: a server that has lost the last token *and* whose clock is behind it gives a client that
/// has seen none a lower token, until one that has seen it comes by or the clock has caught up. A clock is behind where it
/// was set back, where a replica's is further behind its master's than the fail-over took, or where the tokens were ahead
/// of all clocks, by more than a million grants a second. So keep the servers' clocks in step; the store's comparison
/// refuses such a token, and lets nobody in who is late.
///
/// All else is as with [`Lock`](crate::Lock), except that no grant is handed on inside a client.
///
/// The last token of a key stays in the server for ever, in a key of its own, unless
/// [`fencing_token_ttl`](crate::Builder::fencing_token_ttl) is set.
///
/// After Redisson's `RedissonFencedLock`, on the same keys, except that its tokens count from 1, and each entry has one
/// more; on fencing, Martin Kleppmann, "How to do distributed locking".
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.fenced_lock("order:42");
/// let first = lock.acquire().await?;
/// let token = first.token();
/// first.release().await?;
/// assert!(lock.acquire().await?.token() > token);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FencedLock {
    handle: Handle,
}

impl FencedLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Acquires the lock; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.fenced_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire<FencedGuard> {
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
    /// let lock = client.fenced_lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<FencedGuard>, Error> {
        self.acquire().try_now().await
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
    /// let lock = client.fenced_lock("order:42");
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
    /// See [`is_locked`](FencedLock::is_locked).
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
    /// See [`is_locked`](FencedLock::is_locked).
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
    /// See [`is_locked`](FencedLock::is_locked).
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
    /// See [`is_locked`](FencedLock::is_locked).
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }
}

impl From<FencedLock> for Member {
    fn from(lock: FencedLock) -> Self {
        Self::new(lock.handle)
    }
}

/// A [`Guard`] with the fencing token of its grant.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let guard = client.fenced_lock("order:42").acquire().await?;
/// let _written = guard.scope(async { format!("update .. where token < {}", guard.token()) }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it: `let _guard = ..`"]
pub struct FencedGuard(Guard);

impl FencedGuard {
    /// The fencing token: higher than that of every earlier grant of this key.
    /// # Examples
    /// See [`FencedGuard`].
    pub fn token(&self) -> u64 {
        self.0.token().unwrap_or_default()
    }

    /// Enters the lock once more, as [`Guard::reenter`]: the same grant, with the same token.
    ///
    /// # Errors
    /// [`Error::Lost`] where the hold is gone.
    pub fn reenter(&self) -> Result<Self, Error> {
        self.0.reenter().map(Self)
    }

    /// Runs a stream inside the critical section, and holds until its last item, as [`Guard::hold_stream`].
    ///
    /// # Errors
    /// Those of [`Guard::hold_stream`].
    ///
    /// # Cancel safety
    /// That of [`Guard::hold_stream`].
    /// # Examples
    /// See [`Guard::hold_stream`].
    pub fn hold_stream<S: Stream>(self, items: S) -> HoldStream<S> {
        self.0.hold_stream(items)
    }

    /// Ends this guard's part, and confirms it, as [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// That of [`Guard::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }
}

impl Leased for FencedGuard {}

impl From<Guard> for FencedGuard {
    fn from(guard: Guard) -> Self {
        Self(guard)
    }
}

impl From<FencedGuard> for Guard {
    /// The same guard, whose [token](Guard::token) is an `Option` then.
    fn from(guard: FencedGuard) -> Self {
        guard.0
    }
}

impl Deref for FencedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl fmt::Debug for FencedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("token", &self.token())
            .field("guard", &self.0)
            .finish()
    }
}

//! The fenced lock: Redisson's `RFencedLock`.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use futures_core::Stream;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::stream::HoldStream;
use crate::guard::{Guard, Leased};
use crate::primitives::Member;
use crate::resource::owner::Holder;

/// A lock whose grants have fencing tokens; made by [`Client::fenced_lock`](crate::Client::fenced_lock).
///
/// Each grant has a **fencing token**: a number that is higher than the token of every earlier grant of the same key.
/// Send it with each write, and let the store refuse a token that is lower than the highest it has seen. The store then
/// also refuses the write of a holder that hung until its lease had expired, which no lock can prevent by itself.
///
/// In all other respects it behaves like [`Lock`](crate::Lock), except that no hold is handed over inside a client.
///
/// # Which tokens a grant can have
/// A new token is higher than the last one that the server knows, at least the server's time in microseconds since 1970,
/// and higher than all tokens of the key that this client has seen (for the 4096 keys that it used last). Tokens therefore
/// grow across releases, expiry, force-releases and restarts of clients. They also grow if the server has lost the last
/// token or all its data, and after a fail-over to a replica that had not received the last grants. There are gaps between
/// tokens. A re-entry is part of the same grant and has the same token.
///
/// A token can be lower than an earlier one only if the server has lost the last token, its clock is behind that token,
/// and the client has not seen it. Tokens stay too low until a client that has seen the lost token acquires the lock,
/// or until the clock has caught up. A clock is behind if it was set back, if a replica's clock is behind its master's
/// by more than the fail-over took, or if a key had more than a million grants a second. Keep the clocks of the servers
/// synchronized for this reason. A store that compares tokens refuses a token that is too low: the write fails, but no
/// late write gets through.
///
/// Redis keeps the last token of each key forever, in a separate key, unless
/// [`fencing_token_ttl`](crate::Builder::fencing_token_ttl) is set. A [`MemoryServer`](crate::MemoryServer) keeps the tokens
/// of held keys only, and its tokens grow even if its machine's clock is set back.
///
/// # Redisson
/// The lock corresponds to Redisson's `RedissonFencedLock` and uses the same keys. Redisson's tokens start at 1, and each
/// of its re-entries has a new token. On fencing see Martin Kleppmann, "How to do distributed locking".
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
    /// let guard = client.fenced_lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire<FencedGuard> {
        Acquire::new(LockSet::One(self.handle.clone()))
    }

    /// Acquires the lock if it is free, in one round trip and without waiting. Returns `None` if another owner holds it.
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
    /// let lock = client.fenced_lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<FencedGuard>, Error>> + Send + use<> {
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
    /// Returns the fencing token. It is higher than the token of every earlier grant of this key.
    ///
    /// # Examples
    /// See [`FencedGuard`].
    pub fn token(&self) -> u64 {
        self.0.token().unwrap_or_default()
    }

    /// Enters the lock once more, as [`Guard::reenter`]. The new guard belongs to the same grant and has the same token.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold was lost.
    ///
    /// # Examples
    /// See [`Guard::reenter`].
    pub fn reenter(&self) -> Result<Self, Error> {
        self.0.reenter().map(Self)
    }

    /// Runs a stream inside the critical section, and releases the guard after its last item, as
    /// [`Guard::hold_stream`].
    ///
    /// # Errors
    /// The same as [`Guard::hold_stream`].
    ///
    /// # Cancel safety
    /// The same as [`Guard::hold_stream`].
    ///
    /// # Examples
    /// See [`Guard::hold_stream`].
    pub fn hold_stream<S: Stream>(self, items: S) -> HoldStream<S> {
        self.0.hold_stream(items)
    }

    /// Releases the guard and waits for the confirmation, as [`Guard::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    ///
    /// # Cancel safety
    /// The same as [`Guard::release`].
    ///
    /// # Examples
    /// See [`FencedGuard`].
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
    /// Converts to the plain guard, whose [token](Guard::token) is an `Option`.
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

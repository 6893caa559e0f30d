//! Redlock: a lock on one key of several independent servers, granted by a majority of them.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::handles::ask_majority;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::resource::owner::Holder;
use crate::wait::quorum::majority_of;

/// A lock on one key of several servers; made by [`Quorum::lock`](crate::Quorum::lock). The other kinds are made by
/// [`non_reentrant_lock`](crate::Quorum::non_reentrant_lock), [`read_lock`](crate::Quorum::read_lock) and
/// [`write_lock`](crate::Quorum::write_lock).
///
/// * The lock is acquired when a majority of the servers has granted it, and each of them keeps it for at least another quarter
///   of the lease. The lease counts from before the servers were asked. The client subtracts 2 ms and a hundredth of the lease
///   for clock drift, and refuses a lease below 10 ms.
/// * On each server it is an ordinary [`Lock`](crate::Lock), which that server's client renews. That of `Quorum::lock` is reentrant
///   inside its own scope. The hold is lost when fewer than a majority of the servers still have it.
/// * While a majority has the hold, the client restores it on servers that were down at the grant, or that lost it: the watchdog
///   asks a missing server again at each renewal. A hold with a fixed lease is not renewed, and is not restored.
/// * A release is sent to all servers, including those that did not answer, and is confirmed by a majority.
///
/// It implements the Redlock algorithm. Redisson's `RedissonRedLock` stores the same data, if all of its members have the same name.
///
/// # Servers that forget
/// The algorithm relies on servers that remember what they granted. A server that restarts without its data grants the key again.
/// Together with servers that did not grant the key to the first owner, it can form a majority for a second owner. To prevent
/// this, run the servers with `appendfsync always`, or start a server that has lost its data only after the longest lease of all
/// clients.
///
/// # Servers that are away at the start
/// With clients made by `Client::connect_lazy`, a program can start and lock while only a majority of the servers is up. See
/// [`Quorum`](crate::Quorum#servers-that-are-away-at-the-start).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, Quorum};
///
/// let red_lock = Quorum::new([Client::in_memory(), Client::in_memory(), Client::in_memory()]);
/// let guard = red_lock.lock("order:42").acquire().await?;
/// assert!(red_lock.lock("order:42").is_locked().await?);
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonRedLock")]
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct RedLock {
    /// Also a quorum without servers has it, which has no handles.
    key: Arc<str>,
    handles: Arc<[Handle]>,
}

impl RedLock {
    pub(crate) fn new(key: &str, handles: Arc<[Handle]>) -> Self {
        let key = Arc::from(key);
        Self { key, handles }
    }

    /// Returns the key, as it was written: without the prefixes of the clients, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory()]).lock("order:42");
    /// assert_eq!(lock.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Acquires the lock on a majority of the servers. Await the result for a guard, or [run](Acquire::run) a future under
    /// the lock.
    ///
    /// # Errors
    /// When awaited, the errors of [`Acquire`](Acquire#errors).
    ///
    /// # Cancel safety
    /// The same as [`Acquire`](Acquire#cancel-safety).
    ///
    /// # Examples
    /// See [`RedLock`].
    #[track_caller]
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::Quorum(Arc::clone(&self.handles)))
    }

    /// Acquires the lock if it is free, in one round and without waiting. Returns `None` if other owners hold it.
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
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory()]).lock("order:42");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some() && lock.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        self.acquire().try_now()
    }

    /// Returns whether the lock is held on a majority of the servers; see [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Errors
    /// The same as [`holders`](RedLock::holders), and the error of a server that did not answer if it depends on that server whether the lock is
    /// held.
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`RedLock`].
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let answers = ask_majority(&self.handles, Handle::inspect).await?;
        let held = answers.majority_with(|one| (!one.holders.is_empty()).then_some(()))?;
        Ok(held.is_some())
    }

    /// Returns the owners that hold the lock, for all servers together. One hold has a different owner on each server.
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked), if fewer than a majority of the servers answered.
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory(), Client::in_memory()]).lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// assert_eq!(lock.holders().await?.len(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let answers = ask_majority(&self.handles, Handle::holders).await?;
        Ok(answers.answers.into_iter().flatten().collect())
    }

    /// Returns how long a majority of the servers keeps the lock if it is neither renewed nor released; `None` if it is
    /// free.
    ///
    /// # Errors
    /// The same as [`is_locked`](RedLock::is_locked).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory()]).lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// assert!(lock.remaining_lease().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        let answers = ask_majority(&self.handles, Handle::inspect).await?;
        let Some(mut leases) = answers.majority_with(|one| one.ttl)? else {
            return Ok(None);
        };
        leases.sort_unstable();
        // As many leases as are needed last at least as long as this one.
        let last_needed = leases.len().checked_sub(majority_of(self.handles.len()));
        Ok(last_needed.map(|at| leases[at]))
    }

    /// Frees the lock on every server, no matter who holds it, and returns whether it was held on any; see
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// The same as [`holders`](RedLock::holders). The lock may have been freed on some of the servers by then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may have been freed on some of the servers. A request that was sent before is carried out all
    /// the same, and frees the owner that holds the lock by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory()]).lock("order:42");
    /// let _guard = lock.acquire().await?;
    /// assert!(lock.force_release().await?);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool, Error> {
        let answers = ask_majority(&self.handles, Handle::force_release).await?;
        Ok(answers.answers.contains(&true))
    }
}

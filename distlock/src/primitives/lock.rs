//! The reentrant lock: Redisson's `RLock`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::backend::Inspected;
use crate::error::Error;
use crate::guard::Guard;
use crate::key::Key;
use crate::kind::Kind;
use crate::wait::Registry;

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
#[derive(Clone)]
pub struct Lock {
    registry: Arc<Registry>,
    key: Result<Key, Error>,
}

/// Who holds a lock, and how often it was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as it stands in the server, `<client uuid>:<number>`; bytes that are no UTF-8 are replaced.
    pub owner: String,
    /// How often the owner has entered the lock.
    pub count: u64,
}

impl Lock {
    pub(crate) fn new(registry: Arc<Registry>, key: Result<Key, Error>) -> Self {
        Self { registry, key }
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
        Acquire::new(
            Arc::clone(&self.registry),
            Kind::Reentrant,
            self.key.clone(),
        )
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

    /// Does anyone hold the lock? The answer is old when it arrives.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::WrongType`], [`Error::Denied`], [`Error::InvalidKey`].
    ///
    /// # Cancel safety
    /// Reads only.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert!(!client.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect().await?.holders.is_empty())
    }

    /// Who holds the lock: none or one.
    ///
    /// Counts of this client's own holds are exact; the server learns of a changed count a moment later.
    ///
    /// # Errors
    /// As [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// let holders = client.lock("order:42").holders().await?;
    /// assert_eq!(holders[0].owner, guard.owner().to_string());
    /// # Ok(()) }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let inspected = self.inspect().await?;
        let named = inspected.holders.into_iter().map(|(owner, count)| Holder {
            owner: String::from_utf8_lossy(&owner).into_owned(),
            count,
        });
        let counted = named.map(|mut holder| {
            if let Some(count) = self.own_count(&holder.owner) {
                holder.count = count.into();
            }
            holder
        });
        Ok(counted.collect())
    }

    /// How often its holder has entered the lock; 0 where it is free.
    ///
    /// # Errors
    /// As [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// let _again = guard.reenter()?;
    /// assert_eq!(lock.hold_count().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn hold_count(&self) -> Result<u64, Error> {
        Ok(self
            .holders()
            .await?
            .iter()
            .map(|holder| holder.count)
            .sum())
    }

    /// How long the lock stays held unless it is renewed or released; `None` where it is free or its key, written by
    /// somebody else, has no end set.
    ///
    /// # Errors
    /// As [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
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
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        Ok(self.inspect().await?.ttl)
    }

    /// Frees the lock, whoever holds it; whether anyone did. For people who repair things.
    ///
    /// Waiters are woken. The former holder is told of its loss at its next renewal, within a third of its lease, and may
    /// be at work until then.
    ///
    /// # Errors
    /// As [`is_locked`](Lock::is_locked).
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the lock was freed.
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
    pub async fn force_release(&self) -> Result<bool, Error> {
        let (keeper, key) = (
            &self.registry.keeper,
            self.key.as_ref().map_err(Clone::clone)?,
        );
        let since = keeper.now();
        let reply = keeper.backend.force_release(Kind::Reentrant, key);
        let freed = reply.await;
        freed.map_err(|fault| fault.into_error(key, keeper.now().since(since)))
    }

    async fn inspect(&self) -> Result<Inspected, Error> {
        let (keeper, key) = (
            &self.registry.keeper,
            self.key.as_ref().map_err(Clone::clone)?,
        );
        let since = keeper.now();
        let reply = keeper.backend.inspect(Kind::Reentrant, key);
        let inspected = reply.await;
        inspected.map_err(|fault| fault.into_error(key, keeper.now().since(since)))
    }

    /// The count of a hold of this client, which the server may not have heard of yet.
    fn own_count(&self, owner: &str) -> Option<u32> {
        let keeper = &self.registry.keeper;
        let number = owner.strip_prefix(keeper.id.as_hyphenated().to_string().as_str())?;
        let number = number.strip_prefix(':')?.parse().ok()?;
        keeper.count_of(number)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

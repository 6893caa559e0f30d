//! The multi-lock: Redisson's `RLock` of `getMultiLock`, all or nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;
use crate::resource::owner::Holder;
use crate::sync::try_all;

/// Several locks that are held as one; made by [`Client::multi_lock`](crate::Client::multi_lock), or by
/// [`MultiLock::of`] from locks of any kinds and clients.
///
/// * **All or none.** The acquisition completes when all keys are held. While it waits, it holds none of them.
/// * **No deadlocks.** The keys may be in any order, and may repeat. A waiter holds nothing, so two multi-locks with
///   their keys in opposite orders never wait for each other. The keys of the scopes around it are not a part of it, and stay held
///   while it waits. If one path locks the order first and another one the stock first, each with a multi-lock of both inside, they
///   wait for each other. Acquire all keys in the outermost lock, or the outer ones in one order.
/// * **One round trip** acquires all keys, and one releases them, if the locks belong to one client and are of the kinds
///   [`Lock`](crate::Lock), [`NonReentrantLock`](crate::NonReentrantLock) or [`SpinLock`](crate::SpinLock). Other locks
///   are acquired one after another, and released again if one is not available. Processes that name the servers alike take them
///   in the same order. An acquisition that was refused in the middle rests for a random time before it tries again.
/// * **No starvation in one client.** While it waits, the acquisition stands in the queues of all its keys. Waiters of single
///   keys overtake it until all of its keys can be free at nearly the same time. It gets about as many grants as each of these
///   waiters, and costs them at most a quarter of their grants. This applies to the kinds above.
/// * **No order between processes.** The acquisition needs all keys to be free at the same time, even if other processes use them
///   heavily. With two other clients, each with 16 tasks that locked one of the two keys without a pause, the longest wait in 20
///   s was 47 ms. Long sections in other processes make the wait longer. The benchmark `lock`, group `several`, measures it.
/// * **In a Redis Cluster** one command can name keys of one slot only. Keys of several slots are acquired slot by slot. If one
///   is refused, those before it are released at once, and the acquisition waits for the refused key. The acquisition stands in
///   the queues of all keys there too, so it does not starve in one client. A common hash tag, as in `{cart:1}:order` and
///   `{cart:1}:stock`, puts the keys into one slot, and into one command.
/// * **Compatible with single locks.** Each key is stored like a single lock, and excludes other owners of that key,
///   including those of Redisson.
///
/// Inside a scope that holds some of the keys, the acquisition re-enters those and acquires the others. While it waits, other
/// branches of the scope can enter these keys. The hold counts as lost if one of its keys is lost.
///
/// One key with two clients of the same server is refused with [`Error::Deadlock`], which names both addresses. The same error
/// refuses a key that a scope holds with another client of the same server.
///
/// The lock corresponds to Redisson's `RedissonMultiLock`. Unlike Redisson, it does not start again from the first lock when
/// another one is held.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let placed = client
///     .multi_lock(["order:42", "stock:7", "item:9"])
///     .acquire()
///     .run(async { "placed" })
///     .await?;
/// assert_eq!(placed, "placed");
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonMultiLock")]
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `.acquire()` and await it"]
pub struct MultiLock {
    handles: Arc<[Handle]>,
}

/// One of the locks of a [`MultiLock`]. Locks of all kinds convert to it with `into()`.
///
/// # Examples
/// See [`MultiLock::of`].
#[derive(Clone, Debug)]
pub struct Member(Handle);

impl Member {
    pub(super) fn new(handle: Handle) -> Self {
        Self(handle)
    }
}

impl MultiLock {
    pub(crate) fn new(handles: impl IntoIterator<Item = Handle>) -> Self {
        Self {
            handles: handles.into_iter().collect(),
        }
    }

    /// Returns a multi-lock of these locks, which may be of different kinds and clients. Each fenced one has its
    /// [token](crate::Guard::fencing_token). A list of locks is converted by `locks.into_iter().map(Into::into)`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, MultiLock};
    ///
    /// let (orders, stocks) = (Client::in_memory(), Client::in_memory());
    /// let both = MultiLock::of([orders.lock("order:42").into(), stocks.spin_lock("stock:7").into()]);
    /// let guard = both.acquire().await?;
    /// assert!(stocks.lock("stock:7").is_locked().await?);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn of(members: impl IntoIterator<Item = Member>) -> Self {
        Self::new(members.into_iter().map(|member| member.0))
    }

    /// Iterates over the keys as they were written: in the given order, without the prefixes of the clients, and also those that are
    /// invalid. [`Guard::keys`] has each key once, in ascending order.
    ///
    /// # Examples
    /// ```
    /// let both = distlock::Client::in_memory().multi_lock(["stock:7", "order:42"]);
    /// assert_eq!(both.keys().collect::<Vec<_>>(), ["stock:7", "order:42"]);
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.handles.iter().map(Handle::key_text)
    }

    /// Acquires all keys. Await the result for a guard, or [run](Acquire::run) a future under the lock.
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
    /// let guard = client.multi_lock(["order:42", "stock:7"]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::All(Arc::clone(&self.handles)))
    }

    /// Acquires all keys if all of them are free, without waiting. Returns `None` if another owner holds one of them.
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
    /// let _stock = client.lock("stock:7").acquire().await?;
    /// assert!(client.multi_lock(["order:42", "stock:7"]).try_acquire().await?.is_none());
    /// assert!(!client.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        self.acquire().try_now()
    }

    /// Returns whether any owner holds any of the locks; see [`Lock::is_locked`](crate::Lock::is_locked).
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
    /// let _stock = client.lock("stock:7").acquire().await?;
    /// assert!(client.multi_lock(["order:42", "stock:7"]).is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.holders().await?.is_empty())
    }

    /// Returns the owners that hold any of the locks; see [`Lock::holders`](crate::Lock::holders).
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
    /// let _stock = client.lock("stock:7").acquire().await?;
    /// assert_eq!(client.multi_lock(["order:42", "stock:7"]).holders().await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let holders = try_all(self.handles.iter().map(Handle::holders)).await?;
        Ok(holders.into_iter().flatten().collect())
    }

    /// Returns how long the lock with the longest lease stays held if it is neither renewed nor released; `None` if all
    /// are free.
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
    /// let both = client.multi_lock(["order:42", "stock:7"]);
    /// assert!(both.remaining_lease().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        let inspected = try_all(self.handles.iter().map(Handle::inspect)).await?;
        Ok(inspected.into_iter().filter_map(|one| one.ttl).max())
    }

    /// Frees all locks, no matter who holds them, and returns whether any was held; see
    /// [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Errors
    /// The same as [`Lock::is_locked`](crate::Lock::is_locked). Some of the locks may have been freed by then.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the locks may have been freed. A request that was sent before is carried out all the same, and
    /// frees the owner that holds its lock by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let both = client.multi_lock(["order:42", "stock:7"]);
    /// let _guard = both.acquire().await?;
    /// assert!(both.force_release().await?);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool, Error> {
        let freed = try_all(self.handles.iter().map(Handle::force_release)).await?;
        Ok(freed.contains(&true))
    }
}

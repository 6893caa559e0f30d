//! The multi-lock: Redisson's `RLock` of `getMultiLock`, all or nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::acquire::handle::{Handle, Holder};
use crate::acquire::{Acquire, LockSet};
use crate::error::Error;
use crate::guard::Guard;

/// Several locks held as one; made by [`Client::multi_lock`](crate::Client::multi_lock), or by [`MultiLock::of`] from locks
/// of any kinds and clients.
///
/// * **All or nothing**: a guard is given when every key is held, and until then none is kept.
/// * **No deadlock**: keys may come in any order, and more than once. Whoever waits holds nothing, so two multi-locks in
///   opposite orders never wait for each other.
/// * **One round trip** takes all, and one frees all, where the keys are of one client and plain locks
///   ([`Lock`](crate::Lock), [`NonReentrantLock`](crate::NonReentrantLock), [`SpinLock`](crate::SpinLock)). Others are
///   taken one after another, in an order that all clients share, and given back when one is not to be had.
/// * Each key's data in the server is as if it was taken alone, and excludes whoever takes it alone, Redisson included.
///
/// Inside a scope that holds some of its keys it enters those again and takes the others. The hold is lost when any of
/// its keys is.
///
/// After Redisson's `RedissonMultiLock`, without its restarts from the first lock.
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
#[derive(Clone, Debug)]
pub struct MultiLock {
    handles: Arc<[Handle]>,
}

/// One of the locks of a [`MultiLock`], of any kind and client: made from a lock by `into()`.
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

    /// A multi-lock of these locks.
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

    /// Acquires all; await what it gives, or run something under it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let guard = client.multi_lock(["order:42", "stock:7"]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire {
        Acquire::new(LockSet::All(Arc::clone(&self.handles)))
    }

    /// Acquires all if all are free, without waiting. `None` where another holds one of them.
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
    /// let _stock = client.lock("stock:7").acquire().await?;
    /// assert!(client.multi_lock(["order:42", "stock:7"]).try_acquire().await?.is_none());
    /// assert!(!client.lock("order:42").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire().try_now().await
    }

    /// Does anyone hold any of the locks? The answer is old when it arrives.
    ///
    /// # Errors
    /// Those of [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
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

    /// Who holds any of the locks.
    ///
    /// # Errors
    /// Those of [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _stock = client.lock("stock:7").acquire().await?;
    /// assert_eq!(client.multi_lock(["order:42", "stock:7"]).holders().await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        let holders = try_join_all(self.handles.iter().map(Handle::holders)).await?;
        Ok(holders.into_iter().flatten().collect())
    }

    /// How long the one that stays held longest does, unless it is renewed or released; `None` where all are free.
    ///
    /// # Errors
    /// Those of [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    /// Reads only.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let both = client.multi_lock(["order:42", "stock:7"]);
    /// assert!(both.remaining_lease().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        let inspected = try_join_all(self.handles.iter().map(Handle::inspect)).await?;
        Ok(inspected.into_iter().filter_map(|one| one.ttl).max())
    }

    /// Frees all of them, whoever holds them; whether anyone held any. For people who repair things.
    ///
    /// # Errors
    /// Those of [`Lock::is_locked`](crate::Lock::is_locked); some may be free by then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which of them were freed.
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
        let freed = try_join_all(self.handles.iter().map(Handle::force_release)).await?;
        Ok(freed.contains(&true))
    }
}

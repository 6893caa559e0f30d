//! The permit-expirable semaphore: Redisson's `RPermitExpirableSemaphore`.

use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::backend::Change;
use crate::config::check_lease;
use crate::error::{Error, Loss};
use crate::permit_id::PermitId;
use crate::primitives::ExpirablePermit;

/// A number of permits, each with an id and a lease of its own; made by
/// [`Client::expirable_semaphore`](crate::Client::expirable_semaphore).
///
/// At most as many permits are out at a time as were set, among all clients of the same server, Redisson's included. A
/// semaphore that was never set has none: [`try_set_permits`](ExpirableSemaphore::try_set_permits) first.
///
/// * **Nothing leaks**: a permit goes back when its guard is dropped, and by itself when its lease ends, so also when
///   its process died. Whoever waits is woken.
/// * **Kept by a watchdog**: without a [lease](Acquire::lease) a permit is renewed while its guard lives, every third
///   of 30 s by default ([`watchdog_timeout`](crate::Builder::watchdog_timeout)). Redisson has no such renewal: a
///   permit of Redisson's with a lease ends with it, and one without a lease never ends by itself.
/// * **By id from anywhere**: [`ids`](ExpirablePermit::ids) may be given to other processes, which can
///   [release](ExpirableSemaphore::release) a permit or [change its lease](ExpirableSemaphore::update_lease).
/// * **All or none**: several permits asked for at once are granted at once.
/// * **Not reentrant**: acquiring within the scope of a permit is one permit more.
/// * **Not fair between processes**: local waiters are served in their order, and so a large request holds up those of
///   its client behind it.
///
/// Times are the server's, so clocks need not agree. Each permit that is out is an entry of a sorted set: thousands are
/// fine, millions acquired at once would stop the server for seconds.
///
/// After Redisson's `RedissonPermitExpirableSemaphore`, on the same keys, ids and channel, except that what is published
/// is always how many permits are free, and never a negative number.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let seats = client.expirable_semaphore("seats");
/// seats.try_set_permits(2).await?;
/// let permit = seats.acquire().await?;
/// assert_eq!(seats.available_permits().await?, 1);
/// permit.release().await?;
/// assert_eq!(seats.available_permits().await?, 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ExpirableSemaphore {
    handle: Handle,
}

impl ExpirableSemaphore {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Acquires one permit; await what it gives, or run something under it.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(2).await?;
    /// let permit = seats.acquire().wait(Duration::from_secs(5)).lease(Duration::from_secs(60)).await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> Acquire<ExpirablePermit> {
        self.acquire_many(1)
    }

    /// Acquires so many permits at once, or none: one guard for all of them.
    ///
    /// Awaiting it answers [`Error::InvalidPermits`] for 0 and for more than 2147483647, before anything is sent. Where
    /// the semaphore has fewer permits than are asked for it waits until it has more.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let permits = seats.acquire_many(2).await?;
    /// assert_eq!(permits.ids().count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn acquire_many(&self, permits: u32) -> Acquire<ExpirablePermit> {
        Acquire::new(LockSet::One(self.handle.clone())).permits(permits)
    }

    /// Acquires one permit if one is free: one round trip, no waiting. `None` where none is.
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
    /// let seats = client.expirable_semaphore("seats");
    /// assert!(seats.try_acquire().await?.is_none());
    /// seats.try_set_permits(1).await?;
    /// assert!(seats.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<ExpirablePermit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires so many permits if they are free: one round trip, no waiting. `None` where fewer are.
    ///
    /// # Errors
    /// Those of [`Acquire`], but not [`Error::Timeout`]; [`Error::InvalidPermits`] as
    /// [`acquire_many`](ExpirableSemaphore::acquire_many).
    ///
    /// # Cancel safety
    /// If the future is dropped, a hold that was granted in the meantime is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let two = seats.try_acquire_many(2).await?;
    /// assert!(two.is_some() && seats.try_acquire_many(2).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<ExpirablePermit>, Error> {
        self.acquire_many(permits).try_now().await
    }

    /// Sets how many permits there are, if that was never set; whether it was set now. 0 is allowed.
    ///
    /// # Errors
    /// [`Error::InvalidPermits`] above 2147483647, before anything is sent; [`Error::Unavailable`] where nobody
    /// answered for [`unavailable_after`](crate::Builder::unavailable_after), and it is not known whether it was done;
    /// [`Error::WrongType`], [`Error::Denied`], [`Error::InvalidKey`]. It is sent again where an answer is lost, and
    /// counts once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// assert!(seats.try_set_permits(3).await?);
    /// assert!(!seats.try_set_permits(5).await?);
    /// assert_eq!(seats.permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        let permits = countable(permits)?;
        Ok(self.handle.adjust(Change::TrySet(permits)).await? == 1)
    }

    /// Sets how many permits there are, those that are out included.
    ///
    /// Permits that are out stay out. Where more are out than are set, the number of free ones is negative until enough
    /// have come back.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.set_permits(2).await?;
    /// let _permit = seats.acquire().await?;
    /// seats.set_permits(5).await?;
    /// assert_eq!(seats.available_permits().await?, 4);
    /// # Ok(()) }
    /// ```
    pub async fn set_permits(&self, permits: u32) -> Result<(), Error> {
        let permits = countable(permits)?;
        self.handle.adjust(Change::SetPermits(permits)).await?;
        Ok(())
    }

    /// Adds permits, or with a negative number takes some away; a semaphore that was never set has 0 before.
    ///
    /// Taking away what is not free makes the number of free ones negative until enough have come back.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits), but not [`Error::InvalidPermits`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.add_permits(3).await?;
    /// seats.add_permits(-1).await?;
    /// assert_eq!(seats.available_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn add_permits(&self, permits: i32) -> Result<(), Error> {
        self.handle.adjust(Change::Add(permits)).await?;
        Ok(())
    }

    /// How many permits are free. Negative where more are out than there should be. The answer is old when it arrives.
    ///
    /// # Errors
    /// The same as [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert_eq!(client.expirable_semaphore("seats").available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(Change::Count).await
    }

    /// How many permits are out.
    ///
    /// # Errors
    /// The same as [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let _permits = seats.acquire_many(2).await?;
    /// assert_eq!(seats.acquired_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn acquired_permits(&self) -> Result<i64, Error> {
        self.handle.adjust(Change::AcquiredPermits).await
    }

    /// How many permits there are, free or out.
    ///
    /// # Errors
    /// The same as [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let _permit = seats.acquire().await?;
    /// assert_eq!(seats.permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn permits(&self) -> Result<i64, Error> {
        self.handle.adjust(Change::TotalPermits).await
    }

    /// Gives back one permit by its id, whoever has it, and wakes who waits.
    ///
    /// A guard that still has it is told of its loss at its next renewal, within a third of its lease.
    ///
    /// # Errors
    /// [`Error::Lost`] where the permit was gone before: it had expired, or was released. Those of
    /// [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let id = seats.acquire().await?.into_id()?;
    /// let text = id.to_string(); // to another process
    /// seats.release(text.parse()?).await?;
    /// assert!(seats.release(id).await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, id: PermitId) -> Result<(), Error> {
        let released = self.handle.adjust(Change::ReleasePermit(id)).await?;
        self.was_out(released == 1)
    }

    /// Gives one permit a new lease, from 1 ms to ten years and counted from now: also a shorter one, as Redisson does.
    ///
    /// A permit whose guard is kept by a watchdog is renewed all the same, and a shorter lease than the watchdog's may end
    /// before that.
    ///
    /// # Errors
    /// [`Error::Lost`] where the permit was gone before, [`Error::InvalidLease`], and those of
    /// [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may or may not be made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let id = seats.acquire().await?.into_id()?;
    /// seats.update_lease(id, Duration::from_secs(3600)).await?;
    /// assert!(seats.remaining_lease(id).await? > Some(Duration::from_secs(3500)));
    /// # Ok(()) }
    /// ```
    pub async fn update_lease(&self, id: PermitId, lease: Duration) -> Result<(), Error> {
        check_lease(lease)?;
        let updated = self.handle.adjust(Change::UpdateLease(id, lease)).await?;
        self.was_out(updated == 1)
    }

    /// How long one permit stays out unless it is renewed or released; `None` where Redisson acquired it without a
    /// lease, for ever.
    ///
    /// # Errors
    /// [`Error::Lost`] where the permit is gone, and those of [`add_permits`](ExpirableSemaphore::add_permits).
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
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().lease(Duration::from_secs(10)).await?;
    /// assert!(seats.remaining_lease(permit.id()).await? <= Some(Duration::from_secs(10)));
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self, id: PermitId) -> Result<Option<Duration>, Error> {
        let left = self.handle.adjust(Change::RemainingLease(id)).await?;
        self.was_out(left >= -1)?;
        Ok(u64::try_from(left).ok().map(Duration::from_millis))
    }

    /// Removes the semaphore with all permits, free or out; whether there was one. Use it to repair a system by hand,
    /// not as a part of normal work.
    ///
    /// It has no permits then, and waiters wait until some are set. Former holders are told of their loss at their next
    /// renewal, within a third of their lease, and may be at work until then.
    ///
    /// # Errors
    /// The same as [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not be removed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// assert!(seats.delete().await?);
    /// assert!(!seats.delete().await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }

    fn was_out(&self, was_out: bool) -> Result<(), Error> {
        if was_out {
            return Ok(());
        }
        Err(Error::lost(self.handle.key()?.text(), Loss::Gone))
    }
}

/// Refuses a number that Redisson cannot read.
fn countable(permits: u32) -> Result<u32, Error> {
    match i32::try_from(permits) {
        Ok(_) => Ok(permits),
        Err(_) => Err(Error::InvalidPermits {
            permits: permits.into(),
        }),
    }
}

//! The permit-expirable semaphore: Redisson's `RPermitExpirableSemaphore`.

use std::fmt;
use std::time::Duration;

use futures_core::Stream;

use crate::acquire::{Acquire, What};
use crate::backend::Change;
use crate::config::check_lease;
use crate::error::{Error, Loss};
use crate::guard::{Guard, Leased};
use crate::handle::Handle;
use crate::owner::Owner;
use crate::permit::PermitId;
use crate::scope::{Scope, Section};
use crate::stream::HoldStream;

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
        Acquire::new(What::One(self.handle.clone())).permits(permits)
    }

    /// Acquires one permit if one is free: one round trip, no waiting. `None` where none is.
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
    /// Dropping the future gives back, in the background, what was granted meanwhile.
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
    /// Dropping the future leaves open whether it was done.
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
    /// As [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was done.
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
    /// Those of [`try_set_permits`](ExpirableSemaphore::try_set_permits), but not [`Error::InvalidPermits`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was done.
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
    /// Those of [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// Reads only.
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
    /// Those of [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// Reads only.
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
    /// Those of [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// Reads only.
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
    /// Dropping the future leaves open whether it was done.
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
    /// Dropping the future leaves open whether it was done.
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
    /// Reads only.
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

    /// Removes the semaphore with all permits, free or out; whether there was one. For people who repair things.
    ///
    /// It has no permits then, and waiters wait until some are set. Former holders are told of their loss at their next
    /// renewal, within a third of their lease, and may be at work until then.
    ///
    /// # Errors
    /// Those of [`add_permits`](ExpirableSemaphore::add_permits).
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was removed.
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

/// One or several permits of an [`ExpirableSemaphore`], for as long as it lives.
///
/// While a guard without a lease of its own lives, the watchdog renews all of its permits at every third of their
/// lease. Ending:
///
/// * [`release`](ExpirablePermit::release) gives them back and confirms that;
/// * dropping it gives them back in the background, without blocking and without telling how it went;
/// * with a [lease](Acquire::lease) they go back by themselves when that is over;
/// * [`into_id`](ExpirablePermit::into_id) leaves them out, to be released by id.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let seats = client.expirable_semaphore("seats");
/// seats.try_set_permits(1).await?;
/// let permit = seats.acquire().await?;
/// assert!(permit.is_held());
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the permit is given back as soon as the guard is dropped; bind it: `let _permit = ..`"]
pub struct ExpirablePermit(Guard);

impl ExpirablePermit {
    /// The key of the semaphore, without the client's prefix.
    /// # Examples
    /// See [`Guard::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// The acquisition that these permits were granted to.
    /// # Examples
    /// See [`Guard::owner`].
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// The id of the permit; of several, the first.
    /// # Examples
    /// See [`ExpirableSemaphore::remaining_lease`].
    pub fn id(&self) -> PermitId {
        PermitId::of(self.owner(), 0)
    }

    /// The ids of all permits of this guard.
    /// # Examples
    /// See [`ExpirableSemaphore::acquire_many`].
    pub fn ids(&self) -> impl ExactSizeIterator<Item = PermitId> + use<> {
        PermitId::all_of(self.owner(), self.0.permits())
    }

    /// Are the permits this guard's, as far as this process can tell? As [`Guard::is_held`].
    /// # Examples
    /// See [`ExpirablePermit`].
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Completes when a permit is known to be lost, or must be assumed so. As [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().await?;
    /// seats.release(permit.id()).await?; // by somebody else
    /// permit.lost().await; // at the next renewal
    /// assert!(!permit.is_held());
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.lost()
    }

    /// Runs a future for as long as the permits are held: the moment one is lost, `body` is dropped. As
    /// [`Guard::scope`]; but acquiring from this semaphore within it is another permit.
    ///
    /// # Errors
    /// [`Error::Lost`], with `body` cut short.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`; the guard still holds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().await?;
    /// assert_eq!(permit.scope(async { 1 + 2 }).await?, 3);
    /// # Ok(()) }
    /// ```
    pub fn scope<F: Future>(&self, body: F) -> Scope<'_, F> {
        self.0.scope(body)
    }

    /// The critical section as a value of its own, as [`Guard::section`].
    /// # Examples
    /// See [`Section`].
    pub fn section(&self) -> Section {
        self.0.section()
    }

    /// Runs a stream for as long as the permits are held, and gives them back at its end, as [`Guard::hold_stream`].
    /// # Examples
    /// See [`Guard::hold_stream`].
    pub fn hold_stream<S: Stream>(self, items: S) -> HoldStream<S> {
        self.0.hold_stream(items)
    }

    /// Gives all permits back, and confirms it.
    ///
    /// # Errors
    /// * [`Error::Lost`]: a permit was gone already, so others may have had it. The others were given back.
    /// * [`Error::Unavailable`]: nobody answered; the release goes on in the background, and at the latest the lease
    ///   gives them back.
    /// * [`Error::Denied`], [`Error::WrongType`]: the server refused.
    ///
    /// # Cancel safety
    /// The guard ends with the first poll. Dropping the future leaves the release to the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().await?;
    /// seats.release(permit.id()).await?; // by somebody else, meanwhile
    /// assert!(permit.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Ends the guard and leaves its permit out, to be [released by id](ExpirableSemaphore::release) from any process.
    /// Of several permits all stay out, and the first one's id is answered: see
    /// [`into_ids`](ExpirablePermit::into_ids).
    ///
    /// Nobody renews it from here on: when its lease ends it goes back by itself, so acquire it with a
    /// [lease](Acquire::lease) that is long enough, or [give it one](ExpirableSemaphore::update_lease). Without I/O.
    ///
    /// # Errors
    /// [`Error::Lost`] where a permit was gone before; what is left is given back.
    ///
    /// # Examples
    /// See [`ExpirableSemaphore::release`].
    pub fn into_id(self) -> Result<PermitId, Error> {
        let id = self.id();
        self.0.leave_to_its_lease()?;
        Ok(id)
    }

    /// As [`into_id`](ExpirablePermit::into_id), for several permits.
    ///
    /// # Errors
    /// As [`into_id`](ExpirablePermit::into_id).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(2).await?;
    /// for id in seats.acquire_many(2).await?.into_ids()? {
    ///     seats.release(id).await?;
    /// }
    /// assert_eq!(seats.available_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    pub fn into_ids(self) -> Result<Vec<PermitId>, Error> {
        let ids = self.ids();
        self.0.leave_to_its_lease()?;
        Ok(ids.collect())
    }
}

impl Leased for ExpirablePermit {}

#[cfg(feature = "test-util")]
impl ExpirablePermit {
    pub(crate) fn into_guard(self) -> Guard {
        self.0
    }
}

impl From<Guard> for ExpirablePermit {
    fn from(guard: Guard) -> Self {
        Self(guard)
    }
}

impl fmt::Debug for ExpirablePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpirablePermit")
            .field("id", &self.id())
            .field("permits", &self.0.permits())
            .field("guard", &self.0)
            .finish()
    }
}

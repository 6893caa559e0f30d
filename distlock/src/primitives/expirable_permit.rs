//! The guard of permits of an expirable semaphore.

use std::fmt;

use futures_core::Stream;

use crate::error::Error;
use crate::guard::stream::HoldStream;
use crate::guard::{Guard, Leased};
use crate::owner::Owner;
use crate::permit_id::PermitId;
use crate::scope::{Scope, Section};

/// One or several permits of an [`ExpirableSemaphore`](crate::ExpirableSemaphore), for as long as it lives.
///
/// While a guard without a lease of its own lives, the watchdog renews all of its permits at every third of their
/// lease. Ending:
///
/// * [`release`](ExpirablePermit::release) gives them back and confirms that;
/// * dropping it gives them back in the background, without blocking and without telling how it went;
/// * with a [lease](crate::Acquire::lease) they go back by themselves when that is over;
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
    /// See [`ExpirableSemaphore::remaining_lease`](crate::ExpirableSemaphore::remaining_lease).
    pub fn id(&self) -> PermitId {
        PermitId::of(self.owner(), 0)
    }

    /// The ids of all permits of this guard.
    /// # Examples
    /// See [`ExpirableSemaphore::acquire_many`](crate::ExpirableSemaphore::acquire_many).
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

    /// Ends the guard and leaves its permit out, to be [released by id](crate::ExpirableSemaphore::release) from any
    /// process. Of several permits all stay out, and the first one's id is answered: see
    /// [`into_ids`](ExpirablePermit::into_ids).
    ///
    /// Nobody renews it from here on: when its lease ends it goes back by itself, so acquire it with a
    /// [lease](crate::Acquire::lease) that is long enough, or
    /// [give it one](crate::ExpirableSemaphore::update_lease). Without I/O.
    ///
    /// # Errors
    /// [`Error::Lost`] where a permit was gone before; what is left is given back.
    ///
    /// # Examples
    /// See [`ExpirableSemaphore::release`](crate::ExpirableSemaphore::release).
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

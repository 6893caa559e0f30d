//! The guard of permits of an expirable semaphore.

use std::fmt;
use std::time::Duration;

use futures_core::Stream;

use crate::error::Error;
use crate::guard::detached::DetachedHold;
use crate::guard::from_guard::{AcquiredGuard, FromGuard};
use crate::guard::stream::HoldStream;
use crate::guard::{Guard, Leased};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;
use crate::resource::permit_id::PermitId;
use crate::scope::{Scope, Section, TryScope};
use crate::sync::time::Instant;

/// A guard of one or several permits of an [`ExpirableSemaphore`](crate::ExpirableSemaphore).
///
/// The permits are taken for as long as the guard exists. Unless they were acquired with a fixed
/// [lease](crate::Acquire::lease), the watchdog renews all of them each time a third of their lease has passed. A guard
/// ends in one of these ways:
///
/// * [`release`](ExpirablePermit::release) releases the permits and waits for the confirmation.
/// * Dropping the guard releases them in the background. It does not block and does not report errors.
/// * A fixed lease ends: the permits expire.
/// * [`into_id`](ExpirablePermit::into_id) ends the guard and leaves the permits taken, to be released by id.
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
#[must_use = "the permit is released as soon as the guard is dropped; bind it: `let _permit = ..`"]
pub struct ExpirablePermit(Guard);

impl ExpirablePermit {
    /// Returns the key of the semaphore, without the client's prefix.
    ///
    /// # Examples
    /// See [`Guard::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// Returns the owner of the permits.
    ///
    /// # Examples
    /// See [`Guard::owner`].
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// Returns the id of the permit, or of the first of several permits.
    ///
    /// # Examples
    /// See [`ExpirableSemaphore::remaining_lease`](crate::ExpirableSemaphore::remaining_lease).
    pub fn id(&self) -> PermitId {
        PermitId::of(self.owner(), 0)
    }

    /// Returns the ids of all permits of this guard.
    ///
    /// # Examples
    /// See [`ExpirableSemaphore::acquire_many`](crate::ExpirableSemaphore::acquire_many).
    pub fn ids(&self) -> impl ExactSizeIterator<Item = PermitId> + use<> {
        PermitId::all_of(self.owner(), self.0.permits())
    }

    /// Returns whether the permits are held, as far as this process can tell; see [`Guard::is_held`].
    ///
    /// # Examples
    /// See [`ExpirablePermit`].
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns how long the permits are still held, unless they are renewed; zero once one of them is lost. See
    /// [`Guard::remaining`].
    ///
    /// # Examples
    /// See [`ExpirablePermit::extend`].
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Extends the permits' own lease to `lease` from now, and returns until when they are held. See [`Guard::extend`].
    ///
    /// # Errors
    /// The same as [`Guard::extend`]. [`Error::Lost`] if one of several permits has ended: none of them is extended then.
    ///
    /// # Cancel safety
    /// The same as [`Guard::extend`].
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
    /// permit.extend(Duration::from_secs(60)).await?;
    /// assert!(permit.remaining() > Duration::from_secs(50));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<Instant, Error> {
        self.0.extend(lease).await
    }

    /// Returns a future that completes when one of the permits is lost, and also when the guard is released or dropped;
    /// see [`Guard::lost`].
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
    /// seats.release(permit.id()).await?; // by another process
    /// permit.lost().await; // at the next renewal
    /// assert!(!permit.is_held());
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.lost()
    }

    /// Runs `body` while the permits are held, and drops it as soon as one of them is lost; see [`Guard::scope`].
    ///
    /// Unlike inside a lock's scope, acquiring from the same semaphore inside `body` takes another permit.
    ///
    /// # Errors
    /// [`Error::Lost`] if a permit was lost before `body` completed.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`. The guard still holds the permits.
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

    /// Does the same as [`scope`](ExpirablePermit::scope) for a body that returns a `Result`; see [`Guard::try_scope`].
    ///
    /// # Errors
    /// The same as [`Guard::try_scope`].
    ///
    /// # Cancel safety
    /// The same as [`scope`](ExpirablePermit::scope).
    ///
    /// # Examples
    /// See [`Guard::try_scope`].
    pub fn try_scope<T, E, F>(&self, body: F) -> TryScope<'_, F>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.0.try_scope(body)
    }

    /// Returns the critical section as a separate value; see [`Guard::section`].
    ///
    /// # Examples
    /// See [`Section`].
    pub fn section(&self) -> Section {
        self.0.section()
    }

    /// Runs a stream while the permits are held, and releases them after its last item; see [`Guard::hold_stream`].
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

    /// Releases all permits of this guard, and waits until the server has confirmed it.
    ///
    /// # Errors
    /// * [`Error::Lost`]: a permit had already expired or been released, so another owner may have held it. The other
    ///   permits were released.
    /// * [`Error::Unavailable`]: the server did not answer. The release is retried in the background, and the permits
    ///   expire with their lease at the latest.
    /// * [`Error::Denied`], [`Error::WrongType`]: the server refused the release.
    ///
    /// # Cancel safety
    /// The guard ends with the first poll. If the future is dropped after that, the release continues in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(1).await?;
    /// let permit = seats.acquire().await?;
    /// seats.release(permit.id()).await?; // by another process, in the meantime
    /// assert!(permit.release().await.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Ends this guard and leaves its permits taken, so that another process can [attach](crate::Client::attach) them; see
    /// [`Guard::detach`]. The permits have other ids from then on.
    ///
    /// If the other process only needs to release a permit, use [`into_id`](ExpirablePermit::into_id), which works with Redisson
    /// as well.
    ///
    /// # Errors
    /// [`Error::Lost`] if a permit was already lost, or if the guard's own lease is over.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{DetachedHold, ExpirablePermit};
    ///
    /// let client = distlock::Client::in_memory();
    /// let seats = client.expirable_semaphore("seats");
    /// seats.try_set_permits(3).await?;
    /// let message = seats.acquire_many(2).await?.detach()?.to_string();
    /// let detached: DetachedHold<ExpirablePermit> = message.parse()?;
    /// let permits = client.attach(&detached).await?;
    /// assert_eq!(permits.ids().len(), 2);
    /// permits.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn detach(self) -> Result<DetachedHold<Self>, Error> {
        self.0.detach_as()
    }

    /// Ends the guard, leaves its permit taken and returns the permit's id. Any process can then
    /// [release it by id](crate::ExpirableSemaphore::release).
    ///
    /// The permit is no longer renewed and expires with its lease: acquire it with a [lease](crate::Acquire::lease) that
    /// is long enough, or [change the lease](crate::ExpirableSemaphore::update_lease). If the guard has several permits,
    /// all of them stay taken and the id of the first is returned; use [`into_ids`](ExpirablePermit::into_ids) for all.
    /// This method does no I/O.
    ///
    /// If a command of the acquisition was not answered, over a connection that has ended, it may be carried out after the permit was
    /// released by its id. Then a permit is taken once more, until its lease ends. [`detach`](ExpirablePermit::detach) has no such
    /// case.
    ///
    /// # Errors
    /// [`Error::Lost`] if a permit was already lost, or if the guard's own lease is over. The remaining permits are released in the
    /// background.
    ///
    /// # Examples
    /// See [`ExpirableSemaphore::release`](crate::ExpirableSemaphore::release).
    pub fn into_id(self) -> Result<PermitId, Error> {
        let id = self.id();
        self.0.leave_to_its_lease()?;
        Ok(id)
    }

    /// Ends the guard, leaves its permits taken and returns all their ids; see [`into_id`](ExpirablePermit::into_id).
    ///
    /// # Errors
    /// The same as [`into_id`](ExpirablePermit::into_id).
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

impl Leased for ExpirablePermit {
    fn is_of(kind: Kind) -> bool {
        kind == Kind::ExpirableSemaphore
    }
}

/// For tests that treat all kinds alike.
#[cfg(feature = "test-util")]
impl From<ExpirablePermit> for Guard {
    fn from(permit: ExpirablePermit) -> Self {
        permit.0
    }
}

impl FromGuard for ExpirablePermit {
    fn from_guard(guard: AcquiredGuard) -> Self {
        Self(guard.0)
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

//! The permits that are known by their ids.

use std::time::Duration;

use super::ExpirableSemaphore;
use crate::backend::PermitChange;
use crate::config::check_lease;
use crate::error::{Error, Loss};
use crate::resource::permit_id::PermitId;

impl ExpirableSemaphore {
    /// Releases the permit with this id, no matter who holds it, and wakes waiters.
    ///
    /// If a guard still holds the permit, it learns of the loss within about a second if the server
    /// [tracks](crate::Builder::track_holds) the semaphore, and otherwise at its next renewal, within a third of its lease.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit had already expired or been released, and the errors of
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
        let released = self.handle.adjust(PermitChange::ReleasePermit(id)).await?;
        self.was_out(released == 1)
    }

    /// Sets the lease of the permit with this id: from 1 ms to ten years, counted from now.
    ///
    /// As in Redisson, the new lease may be shorter than what was left. A watchdog that renews the permit continues to
    /// renew it. A lease that is shorter than the watchdog's may expire before the next renewal.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit had already expired or been released, [`Error::InvalidLease`] if the lease is out of
    /// range, and the errors of [`add_permits`](ExpirableSemaphore::add_permits).
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
        let updated = self
            .handle
            .adjust(PermitChange::UpdateLease(id, lease))
            .await?;
        self.was_out(updated == 1)
    }

    /// Returns how long the permit with this id stays taken if it is neither renewed nor released.
    ///
    /// The result is `None` if Redisson acquired the permit without a lease, so that it never expires.
    ///
    /// # Errors
    /// [`Error::Lost`] if the permit has expired or was released, and the errors of
    /// [`add_permits`](ExpirableSemaphore::add_permits).
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
        let left = self.handle.adjust(PermitChange::RemainingLease(id)).await?;
        // -1 is a lease that never ends, -2 a permit that is not acquired.
        self.was_out(left >= -1)?;
        Ok(u64::try_from(left).ok().map(Duration::from_millis))
    }

    /// Returns [`Error::Lost`] if the permit was not taken.
    fn was_out(&self, was_out: bool) -> Result<(), Error> {
        if was_out {
            return Ok(());
        }
        Err(Error::lost(self.handle.key()?.text(), Loss::Gone))
    }
}

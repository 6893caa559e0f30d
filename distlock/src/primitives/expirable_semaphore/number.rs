//! How many permits a semaphore has.

use super::ExpirableSemaphore;
use crate::backend::PermitChange;
use crate::config::{check_sum, check_total};
use crate::error::Error;

impl ExpirableSemaphore {
    /// Sets the number of permits, from 0 to 2147483647, if it was not set before. Returns whether it was set now.
    ///
    /// If a reply is lost the change is sent again, and still takes effect exactly once.
    ///
    /// # Errors
    /// * [`Error::InvalidPermits`]: the number is too large.
    /// * [`Error::Unavailable`]: the server did not answer for
    ///   [`unavailable_after`](crate::Builder::unavailable_after), and it is unknown whether the change was made.
    /// * [`Error::WrongType`]: the key holds a value that is not a number.
    /// * [`Error::Denied`]: the server refused the command.
    /// * [`Error::InvalidKey`]: the key is empty or too long.
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
        check_total(permits)?;
        Ok(self.handle.adjust(PermitChange::TrySet(permits)).await? == 1)
    }

    /// Sets the total number of permits, including those that are taken.
    ///
    /// Permits that are taken stay taken. If they are more than the new total, the number of available permits is negative
    /// until enough of them are released.
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
        check_total(permits)?;
        self.handle
            .adjust(PermitChange::SetPermits(permits))
            .await?;
        Ok(())
    }

    /// Adds permits, or removes some if the number is negative. A semaphore that was never set starts at 0.
    ///
    /// If more permits are removed than are available, the number of available permits is negative until enough of the
    /// taken ones are released.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits). With [`Error::InvalidPermits`] the number of
    /// available permits would be above 2147483647, or as far below 0, and nothing was changed. After [`Error::Unavailable`] the
    /// change may have been made, and a second call is a second change: read the number by [`permits`](ExpirableSemaphore::permits)
    /// before you repeat it.
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
        let sum = self.handle.adjust(PermitChange::Add(permits)).await?;
        check_sum(sum).map(drop)
    }

    /// Returns how many permits are available. The number is negative if more permits are taken than the semaphore has in
    /// total, and it may have changed by the time it is returned.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
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
        self.handle.adjust(PermitChange::Count).await
    }

    /// Returns how many permits are taken.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
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
        self.handle.adjust(PermitChange::AcquiredPermits).await
    }

    /// Returns the total number of permits, available and taken.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
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
        self.handle.adjust(PermitChange::TotalPermits).await
    }

    /// Removes the semaphore with all its permits, and returns whether there was one.
    ///
    /// Use it to repair a system by hand, not as a part of normal work. Acquisitions that wait fail with [`Error::Lost`]
    /// within seconds, unless permits are set again before. Former holders learn of the loss within about a second if
    /// the server [tracks](crate::Builder::track_holds) the semaphore, and otherwise at their next renewal, within a third of their
    /// lease. Their scopes may still run until then.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](ExpirableSemaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// If the future is dropped, the semaphore may or may not be removed.
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
}

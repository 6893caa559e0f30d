//! The guard of permits of a semaphore.

use std::fmt;

use crate::error::Error;
use crate::guard::Guard;
use crate::guard::from_guard::{AcquiredGuard, FromGuard};
use crate::resource::owner::Owner;

/// One or several permits of a [`Semaphore`](crate::Semaphore), which are taken for as long as this value exists.
///
/// Permits that were acquired together are released together: by [`release`](Permit::release), which waits for the
/// confirmation, or in the background when the value is dropped. They have no lease and do not expire.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let printers = client.semaphore("printers");
/// printers.try_set_permits(1).await?;
/// let permit = printers.acquire().await?;
/// permit.release().await?;
/// assert_eq!(printers.available_permits().await?, 1);
/// # Ok(()) }
/// ```
#[must_use = "the permits are released as soon as this is dropped; bind it: `let _permit = ..`"]
pub struct Permit(Guard);

impl Permit {
    /// Returns the key of the semaphore, without the client's prefix.
    ///
    /// # Examples
    /// See [`Permit::permits`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// Returns the number of permits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(3).await?;
    /// let two = printers.acquire_many(2).await?;
    /// assert_eq!((two.key(), two.permits()), ("printers", 2));
    /// # Ok(()) }
    /// ```
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// Returns the owner of the permits: `<client uuid>:<number>`.
    ///
    /// # Examples
    /// See [`Owner`].
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// Releases the permits, and waits until the server has confirmed it.
    ///
    /// # Errors
    /// * [`Error::Unavailable`]: the server did not answer. The release is retried in the background until it is
    ///   confirmed, and takes effect exactly once.
    /// * [`Error::Lost`]: the semaphore was deleted, or the server has lost its data. Nothing was released.
    /// * [`Error::Denied`], [`Error::WrongType`]: the server refused the release.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    ///
    /// # Examples
    /// See [`Permit`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Keeps the permits taken. Only [`Semaphore::release_permits`](crate::Semaphore::release_permits) releases them, in this
    /// program or in another one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let printers = client.semaphore("printers");
    /// printers.try_set_permits(1).await?;
    /// printers.acquire().await?.forget();
    /// assert_eq!(printers.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    pub fn forget(self) {
        self.0.forget();
    }
}

/// For tests that treat all kinds alike.
#[cfg(feature = "test-util")]
impl From<Permit> for Guard {
    fn from(permit: Permit) -> Self {
        permit.0
    }
}

impl FromGuard for Permit {
    fn from_guard(guard: AcquiredGuard) -> Self {
        Self(guard.0)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}

//! What becomes of the value of a body whose lock was lost.

use std::fmt;

use futures_util::FutureExt as _;

use super::Acquire;
use crate::error::Error;
use crate::guard::Guard;
use crate::guard::from_guard::FromGuard;
use crate::guard::run::{Guarded, finish, lost_only};

/// An acquisition with a function for the value of a body whose lock was lost, made by [`Acquire::on_lost`].
///
/// # Examples
/// See [`Acquire::on_lost`].
#[must_use = "an acquisition does nothing unless it is awaited or run"]
pub struct OnLost<H, G = Guard> {
    acquire: Acquire<G>,
    on_lost: H,
}

impl<G: FromGuard> Acquire<G> {
    /// Sets what to do with the value of a body that has run to its end if its hold turns out to be lost.
    ///
    /// A body may have done what cannot be done twice, such as a payment, before its hold is found lost at the release. Its value
    /// is then given to `on_lost` together with the [`Error::Lost`], and what `on_lost` returns is the result: the value with a
    /// mark, or an error that says what was done. Another owner may have been inside the critical section, so `on_lost` decides
    /// whether the value still counts. Without it, the result is the error alone.
    ///
    /// `on_lost` is called in no other case: not if the body was dropped before its end, if it has returned an error to
    /// [`try_run`](OnLost::try_run), if the lock was not granted, or if the server did not answer the release. Set everything
    /// else before: only [`run`](OnLost::run) and [`try_run`](OnLost::try_run) come after it. If `on_lost` is a closure that uses
    /// the value, its type has to be written, as in `|paid: Payment, loss| ..`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// #[derive(Debug, PartialEq)]
    /// struct Payment {
    ///     id: u64,
    ///     needs_check: bool,
    /// }
    ///
    /// let lock = distlock::Client::in_memory().lock("order:42");
    /// let acquire = lock.acquire().on_lost(|paid: Payment, loss| {
    ///     eprintln!("payment {} is made, but {loss}", paid.id);
    ///     Ok(Payment { needs_check: true, ..paid })
    /// });
    /// let paid = acquire.run(async {
    ///     // Another process could do this.
    ///     lock.force_release().await.expect("the memory backend answers");
    ///     Payment { id: 7, needs_check: false }
    /// });
    /// assert_eq!(paid.await?, Payment { id: 7, needs_check: true });
    /// # Ok(()) }
    /// ```
    pub fn on_lost<T, R, H: FnOnce(T, Error) -> R>(self, on_lost: H) -> OnLost<H, G> {
        OnLost {
            acquire: self,
            on_lost,
        }
    }
}

impl<H, G: FromGuard> OnLost<H, G> {
    /// Does the same as [`Acquire::run`], and gives the value of `body` to the function of [`on_lost`](Acquire::on_lost) if the
    /// hold turns out to be lost after its end.
    ///
    /// # Errors
    /// Those of [`Acquire::run`] if `body` was not run to its end, and otherwise what that function returns.
    ///
    /// # Cancel safety
    /// The same as [`Acquire::run`].
    ///
    /// # Examples
    /// See [`Acquire::on_lost`].
    pub fn run<T, F>(self, body: F) -> impl Future<Output = Result<T, Error>>
    where
        F: Future<Output = T>,
        H: FnOnce(T, Error) -> Result<T, Error>,
    {
        // Not an `async` block, which would have room for the body twice.
        Guarded::new(self.acquire.acquiring(), body).map(|ended| {
            let (value, released) = ended?;
            match lost_only(released) {
                Ok(()) => Ok(value),
                Err(lost) => (self.on_lost)(value, lost),
            }
        })
    }

    /// Does the same as [`Acquire::try_run`], and gives the value of `body` to the function of [`on_lost`](Acquire::on_lost) if the
    /// hold turns out to be lost after its end. An error of `body` stays the result.
    ///
    /// # Errors
    /// Those of [`Acquire::try_run`] if `body` has not returned a value, and otherwise what that function returns.
    ///
    /// # Cancel safety
    /// The same as [`Acquire::run`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lock = distlock::Client::in_memory().lock("order:42");
    /// let told = lock
    ///     .acquire()
    ///     .on_lost(|payment: u64, loss| Err(format!("payment {payment} is made, but {loss}").into()))
    ///     .try_run(async {
    ///         lock.force_release().await?; // another process could do this
    ///         Ok::<u64, Box<dyn std::error::Error>>(7)
    ///     })
    ///     .await;
    /// assert!(told.unwrap_err().to_string().starts_with("payment 7 is made, but"));
    /// # Ok(()) }
    /// ```
    pub fn try_run<T, E, F>(self, body: F) -> impl Future<Output = Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
        H: FnOnce(T, Error) -> Result<T, E>,
    {
        Guarded::new(self.acquire.acquiring(), body).map(|ended| {
            let (output, released) = ended?;
            let value = match output {
                Ok(value) => value,
                failed => return finish(failed, released),
            };
            match lost_only(released) {
                Ok(()) => Ok(value),
                Err(lost) => (self.on_lost)(value, lost),
            }
        })
    }
}

impl<H, G> fmt::Debug for OnLost<H, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnLost").finish_non_exhaustive()
    }
}

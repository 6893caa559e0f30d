//! The return value of the function: how a lock error becomes one, and what the body's own result means for the lock.

use std::ops::Deref;

use crate::error::Error;
use crate::guard::run::lost_only;
use crate::telemetry;

/// A return type that can carry a lock error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock error",
    label = "this return type has no place for a `distlock::Error`",
    note = "return `Result<T, E>` where `E: From<distlock::Error>`, or add `on_error = |error| ..`"
)]
pub trait LockOutput: Sized {
    /// Returns the value that replaces the body's.
    fn from_lock_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> LockOutput for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(error.into())
    }
}

/// Returns nothing, with the type of what the function returns.
#[must_use]
pub fn none<R>() -> Option<R> {
    None
}

/// Returns the handler that is used without `on_error`.
pub fn fail<R: LockOutput>() -> Handler<(), R> {
    let call = |(), error| R::from_lock_error(error);
    let function = ();
    Handler { function, call }
}

/// Makes the return value from a lock error: the user's function, and how to call it.
///
/// The function's type is checked once, where it is given, so that a wrong one is one error and not one at each use.
pub struct Handler<F, R> {
    function: F,
    call: fn(F, Error) -> R,
}

impl<F, R> Handler<F, R> {
    /// Returns the value for this error.
    pub fn make(self, error: Error) -> R {
        (self.call)(self.function, error)
    }
}

/// A function from a lock error to the return value. It is one trait so that a wrong function is one error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function from a lock error to `{R}`",
    label = "expected a function of a `distlock::Error` that returns `{R}`, e.g. `|error| ..`"
)]
pub trait Handles<R>: FnOnce(Error) -> R {}

#[diagnostic::do_not_recommend]
impl<R, F: FnOnce(Error) -> R> Handles<R> for F {}

/// Fixes the types of a handler, so that a closure needs no annotation and a mismatch is reported inside it.
pub fn handler<R, F: Handles<R>>(function: F) -> Handler<F, R> {
    let call = |function: F, error| function(error);
    Handler { function, call }
}

/// Tells whether the body returned an `Err`. It works for every return type, including those that are not a `Result`.
///
/// The method on `Body<Result<..>>` is found before the one that `Deref` leads to.
pub struct Body<'a, T>(pub &'a T);

impl<T, E> Body<'_, Result<T, E>> {
    /// Returns whether the body returned an `Err`.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.0.is_err()
    }
}

impl<T> Deref for Body<'_, T> {
    type Target = NoResult;

    fn deref(&self) -> &NoResult {
        &NoResult
    }
}

/// Stands for every type that is not a `Result`.
pub struct NoResult;

impl NoResult {
    /// Returns `false`.
    #[must_use]
    pub fn failed(&self) -> bool {
        false
    }
}

/// Returns what the caller of a body that ran to its end has to know about the release.
///
/// # Errors
/// [`Error::Lost`], unless the body failed: the caller then gets the body's own error, and the loss is logged.
pub(super) fn settle(released: Result<(), Error>, failed: bool) -> Result<(), Error> {
    if released.is_ok() {
        return Ok(());
    }
    match lost_only(released) {
        Err(lost) if failed => {
            telemetry::release_failed(&lost);
            Ok(())
        }
        other => other,
    }
}

//! What the function returns: a value made of a lock error, and what of the body's own it is to the lock.

use std::ops::Deref;

use crate::error::Error;
use crate::guard::run::lost_only;
use crate::telemetry;

/// A return type that has a place for a lock error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock error",
    label = "this return type has no place for a `distlock::Error`",
    note = "return `Result<T, E>` where `E: From<distlock::Error>`, or add `on_error = |error| ..`"
)]
pub trait LockOutput: Sized {
    /// The value in place of the body's.
    fn from_lock_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> LockOutput for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(error.into())
    }
}

/// What makes the value where no `on_error` is given.
pub fn fail<R: LockOutput>() -> Handler<(), R> {
    let call = |(), error| R::from_lock_error(error);
    let function = ();
    Handler { function, call }
}

/// What makes the value of a lock error: the user's function, and how to call it.
///
/// That it is one is asked for once, where it is given: a wrong one is one error and not one at each use.
pub struct Handler<F, R> {
    function: F,
    call: fn(F, Error) -> R,
}

impl<F, R> Handler<F, R> {
    /// The value.
    pub fn make(self, error: Error) -> R {
        (self.call)(self.function, error)
    }
}

/// A function of the error; one bound, for it is one mistake not to be one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no function from a lock error to `{R}`",
    label = "expected a function of a `distlock::Error` that returns `{R}`, e.g. `|error| ..`"
)]
pub trait Handles<R>: FnOnce(Error) -> R {}

#[diagnostic::do_not_recommend]
impl<R, F: FnOnce(Error) -> R> Handles<R> for F {}

/// Ties a handler's types down, so that a closure needs no annotation and a mismatch is reported in it.
pub fn handler<R, F: Handles<R>>(function: F) -> Handler<F, R> {
    let call = |function: F, error| function(error);
    Handler { function, call }
}

/// Did the body end in an `Err`? Asked of every return type, also of those that are no `Result`.
///
/// The method on `Body<Result<..>>` is found before the one that `Deref` leads to.
pub struct Body<'a, T>(pub &'a T);

impl<T, E> Body<'_, Result<T, E>> {
    /// Whether it did.
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

/// Stands for every type that is no `Result`.
pub struct NoResult;

impl NoResult {
    /// It did not.
    #[must_use]
    pub fn failed(&self) -> bool {
        false
    }
}

/// What of a release concerns the caller of a body that ran to its end.
///
/// # Errors
/// `Lost`, unless the body failed: then its own error is the better one, and the loss is logged.
pub fn settle(released: Result<(), Error>, failed: bool) -> Result<(), Error> {
    match lost_only(released) {
        Err(lost) if failed => {
            telemetry::release_failed(&lost);
            Ok(())
        }
        other => other,
    }
}

//! The return value of the function: how a lock error becomes one, and what the body's own result means for the lock.

use std::marker::PhantomData;
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

/// Makes the return value from the value of a body whose lock was lost: the user's function, and how to call it.
pub struct LostHandler<F, R> {
    function: F,
    call: fn(F, R, Error) -> R,
}

/// What becomes of the output of a body whose lock was lost.
pub trait LostOutput<R> {
    /// Returns the value of the function.
    fn make<H>(self, output: R, lost: Error, on_error: Handler<H, R>) -> R;
}

/// Without `on_lost`, the output is given up.
impl<R> LostOutput<R> for () {
    fn make<H>(self, output: R, lost: Error, on_error: Handler<H, R>) -> R {
        // Before the handler runs: the output may have something that the handler waits for, such as another guard.
        drop(output);
        on_error.make(lost)
    }
}

impl<F, R> LostOutput<R> for LostHandler<F, R> {
    fn make<H>(self, output: R, lost: Error, _on_error: Handler<H, R>) -> R {
        (self.call)(self.function, output, lost)
    }
}

/// A function from the value of a body and the loss of its lock to the return value. It is one trait so that a wrong function
/// is one error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function from a value and the loss of its lock to `{R}`",
    label = "expected a function of `{T}` and a `distlock::Error` that returns `{R}`, e.g. `|value, loss| ..`"
)]
pub trait HandlesLost<T, R>: FnOnce(T, Error) -> R {}

#[diagnostic::do_not_recommend]
impl<T, R, F: FnOnce(T, Error) -> R> HandlesLost<T, R> for F {}

/// The return type of the function. It knows which value `on_lost` gets: that in the `Ok` of a `Result`, and otherwise all of it.
///
/// The method on `Returned<Result<..>>` is found before the one that `Deref` leads to.
pub struct Returned<R>(Plain<R>);

/// Stands for every type, also for one that is not a `Result`.
pub struct Plain<R>(PhantomData<fn() -> R>);

/// Returns the return type of the function.
#[must_use]
pub fn returned<R>() -> Returned<R> {
    Returned(plain())
}

/// Returns a return type that is `impl Trait`, of which `on_lost` gets all.
#[must_use]
pub fn plain<R>() -> Plain<R> {
    Plain(PhantomData)
}

impl<T, E> Returned<Result<T, E>> {
    /// Fixes the types of the handler, so that a closure needs no annotation.
    pub fn on_lost<F: HandlesLost<T, Result<T, E>>>(
        &self,
        function: F,
    ) -> LostHandler<F, Result<T, E>> {
        let call = |function: F, output: Result<T, E>, lost| match output {
            Ok(value) => function(value, lost),
            Err(own) => Err(own),
        };
        LostHandler { function, call }
    }
}

impl<R> Deref for Returned<R> {
    type Target = Plain<R>;

    fn deref(&self) -> &Plain<R> {
        &self.0
    }
}

impl<R> Plain<R> {
    /// Fixes the types of the handler.
    pub fn on_lost<F: HandlesLost<R, R>>(&self, function: F) -> LostHandler<F, R> {
        let call = |function: F, output, lost| function(output, lost);
        LostHandler { function, call }
    }
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

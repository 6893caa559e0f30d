//! What the expansion of `#[distributed_lock]` may name. Not part of the API: it changes without notice.

use std::fmt::{Display, Write as _};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;

pub use std::result::Result::{Err, Ok};
pub use std::time::Duration;

use crate::client::{self, Client};
use crate::error::Error;
use crate::guard::Guard;
use crate::run::{Guarded, lost_only};
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

/// Makes the value where no `on_error` is given.
pub fn fail<R: LockOutput>(error: Error) -> R {
    R::from_lock_error(error)
}

/// Ties a handler's types down, so that a closure needs no annotation and a mismatch is reported in it.
pub fn handler<R>(handler: impl FnOnce(Error) -> R) -> impl FnOnce(Error) -> R {
    handler
}

/// A value that a placeholder renders.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "a placeholder of this key is of this type, which has no `Display`",
    note = "unwrap the `Option`, or name a field of it: `<order.id>`",
    note = "a type parameter needs the bound `std::fmt::Display`"
)]
pub trait KeyPart {
    /// Writes the value as the key has it.
    fn render(&self, key: &mut String);
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {
    fn render(&self, key: &mut String) {
        // Writing to a `String` fails only where `Display` does, and `to_string` would panic then.
        let _ = write!(key, "{self}");
    }
}

/// A key template being rendered.
#[derive(Default)]
pub struct Template {
    key: String,
    empty: Option<&'static str>,
}

impl Template {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends text.
    pub fn text(&mut self, text: &str) {
        self.key.push_str(text);
    }

    /// Appends a placeholder's value; `source` is how it is written.
    pub fn part<T: KeyPart + ?Sized>(&mut self, source: &'static str, value: &T) {
        let before = self.key.len();
        value.render(&mut self.key);
        if self.key.len() == before {
            self.empty.get_or_insert(source);
        }
    }

    /// The key, unless a placeholder rendered to nothing: that would be one lock for all.
    ///
    /// # Errors
    /// [`Error::InvalidKey`], naming the placeholder.
    pub fn finish(self) -> Result<String, Error> {
        match self.empty {
            None => Ok(self.key),
            Some(source) => {
                let reason = format!("its placeholder `<{source}>` is empty");
                Err(Error::invalid_key(&self.key, reason))
            }
        }
    }
}

/// A value that is a whole key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a lock key",
    label = "not `Into<String>`",
    note = "write a template, e.g. `key = \"pay:<id>\"`, or anything that is `Into<String>`"
)]
pub trait WholeKey {
    /// The key's text.
    fn into_key(self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: Into<String>> WholeKey for T {
    fn into_key(self) -> String {
        self.into()
    }
}

/// The key of `key = expression`.
///
/// # Errors
/// None; it has the shape of [`Template::finish`].
pub fn key(key: impl WholeKey) -> Result<String, Error> {
    Ok(key.into_key())
}

/// All that one call locks.
pub struct Keys {
    keys: Vec<String>,
    several: bool,
    /// The first that could not be made.
    wrong: Option<Error>,
}

impl Keys {
    /// `key = ..`
    #[must_use]
    pub fn one(key: Result<String, Error>) -> Self {
        let mut keys = Self::several();
        keys.several = false;
        keys.add(key);
        keys
    }

    /// `keys = ..`, none so far.
    #[must_use]
    pub fn several() -> Self {
        Self {
            keys: Vec::new(),
            several: true,
            wrong: None,
        }
    }

    /// One more.
    pub fn add(&mut self, key: Result<String, Error>) {
        match key {
            Ok(key) => self.keys.push(key),
            Err(error) => self.wrong = self.wrong.take().or(Some(error)),
        }
    }
}

/// An expression that gives any number of keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives no lock keys",
    label = "expected an iterator, a `Vec`, an array or an `Option` of what is `Into<String>`",
    note = "one key goes into `key = ..`, or without the dots into the list"
)]
pub trait KeyList {
    /// Adds them.
    fn add_to(self, keys: &mut Keys);
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: Into<String>>> KeyList for I {
    fn add_to(self, keys: &mut Keys) {
        keys.keys.extend(self.into_iter().map(Into::into));
    }
}

/// What may stand behind `client =`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a distlock client",
    label = "expected a `Client`, a reference to one, or a type that is `AsRef<Client>`"
)]
pub trait AsClient {
    /// The client.
    fn client(&self) -> &Client;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<Client> + ?Sized> AsClient for T {
    fn client(&self) -> &Client {
        self.as_ref()
    }
}

/// The options of one call, on the way to a guard.
pub struct Enter {
    keys: Keys,
    client: Option<Client>,
    wait: Option<Duration>,
    lease: Option<Duration>,
}

/// Boxed, so that waiting costs the function's future a pointer.
pub type Entering = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

impl Enter {
    /// No options yet.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let (client, wait, lease) = (None, None, None);
        Self {
            keys,
            client,
            wait,
            lease,
        }
    }

    /// `client = ..`; else the scoped one, else the installed one.
    #[must_use]
    pub fn client<C: AsClient + ?Sized>(mut self, client: &C) -> Self {
        self.client = Some(client.client().clone());
        self
    }

    /// `wait = ..`
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// `lease = ..`
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Acquires the lock.
    #[must_use]
    pub fn enter(self) -> Entering {
        Box::pin(async move {
            let Keys {
                mut keys,
                several,
                wrong,
            } = self.keys;
            wrong.map_or(Ok(()), Err)?;
            let client = self.client.map_or_else(client::current, Ok)?;
            let mut acquire = match keys.pop() {
                Some(key) if !several => client.lock(key).acquire(),
                last => client.multi_lock(keys.into_iter().chain(last)).acquire(),
            };
            if let Some(wait) = self.wait {
                acquire = acquire.wait(wait);
            }
            if let Some(lease) = self.lease {
                acquire = acquire.lease(lease);
            }
            acquire.await
        })
    }
}

/// Uses a parameter, so that the body's future takes it.
pub fn mention<T: ?Sized>(_: &T) {}

/// Runs the body in the guard's scope, then releases; what the release said stands beside the body's output.
///
/// # Errors
/// `Lost`, with the body cut short.
pub fn hold<F: Future>(
    guard: Guard,
    body: F,
) -> impl Future<Output = Result<(F::Output, Result<(), Error>), Error>> {
    Guarded::held(guard, body)
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

//! The keys that a call locks, made from its arguments.

use std::fmt::{self, Display, Write as _};

use smallvec::SmallVec;

use crate::error::Error;

/// A value that a placeholder renders.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "a placeholder of this key is of this type, which has no `Display`",
    note = "unwrap the `Option`, or name a field of it: `<order.id>`",
    note = "a type parameter needs the bound `std::fmt::Display`"
)]
pub trait KeyPart {
    /// Appends the value to the key.
    ///
    /// # Errors
    /// The error of the value's `Display`.
    fn render(&self, key: &mut String) -> fmt::Result;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {
    fn render(&self, key: &mut String) -> fmt::Result {
        write!(key, "{self}")
    }
}

/// A key template being rendered.
#[derive(Default)]
pub struct Template {
    key: String,
    /// The first placeholder that cannot be part of a key, and why.
    wrong: Option<(&'static str, &'static str)>,
}

impl Template {
    /// Returns an empty template.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends text.
    pub fn text(&mut self, text: &str) {
        self.key.push_str(text);
    }

    /// Appends the value of the placeholder that is written as `source`.
    pub fn part<T: KeyPart + ?Sized>(&mut self, source: &'static str, value: &T) {
        let before = self.key.len();
        let rendered = value.render(&mut self.key);
        if rendered.is_err() {
            self.wrong.get_or_insert((source, "cannot be rendered"));
        } else if self.key.len() == before {
            self.wrong.get_or_insert((source, "is empty"));
        }
    }

    /// Returns the key.
    ///
    /// # Errors
    /// [`Error::InvalidKey`], with the name of the placeholder, if a value is empty or could not be rendered: different
    /// calls would then share one lock.
    pub fn finish(self) -> Result<String, Error> {
        match self.wrong {
            None => Ok(self.key),
            Some((source, how)) => {
                let reason = format!("its placeholder `<{source}>` {how}");
                Err(Error::invalid_key(&self.key, reason))
            }
        }
    }
}

/// A value that is a complete key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a lock key",
    label = "not `Into<String>`",
    note = "write a template, e.g. `key = \"pay:<id>\"`, or anything that is `Into<String>`"
)]
pub trait WholeKey {
    /// Returns the key.
    fn into_key(self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: Into<String>> WholeKey for T {
    fn into_key(self) -> String {
        self.into()
    }
}

/// Returns the key of `key = expression`.
///
/// # Errors
/// None. The type is the same as that of [`Template::finish`].
pub fn key(key: impl WholeKey) -> Result<String, Error> {
    Ok(key.into_key())
}

/// All keys that one call locks.
#[derive(Default)]
pub struct Keys {
    /// Most calls lock one.
    pub(super) keys: SmallVec<[String; 1]>,
    /// The error of the first key that could not be made.
    pub(super) wrong: Option<Error>,
}

impl Keys {
    /// Returns no keys. `Default` is not in scope under `#![no_implicit_prelude]`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key, or the error that was found instead.
    pub fn add(&mut self, key: Result<String, Error>) {
        match key {
            Ok(key) => self.keys.push(key),
            Err(error) => self.wrong = self.wrong.take().or(Some(error)),
        }
    }
}

/// An expression that yields any number of keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives no lock keys",
    label = "expected an iterator, a `Vec`, an array or an `Option` of items that are `Into<String>`",
    note = "pass a single key as `key = ..`, or in the list without the dots",
    note = "convert numbers and borrowed items to text: `..ids.iter().map(|id| format!(\"item:{{id}}\"))`"
)]
pub trait KeyList {
    /// Adds the keys.
    fn add_to(self, keys: &mut Keys);
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: Into<String>>> KeyList for I {
    fn add_to(self, keys: &mut Keys) {
        keys.keys.extend(self.into_iter().map(Into::into));
    }
}

//! What is locked: texts made of the arguments.

use std::fmt::{self, Display, Write as _};

use crate::error::Error;

/// A value that a placeholder renders.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "a placeholder of this key is of this type, which has no `Display`",
    note = "unwrap the `Option`, or name a field of it: `<order.id>`",
    note = "a type parameter needs the bound `std::fmt::Display`"
)]
pub trait KeyPart {
    /// Writes the value as the key has it.
    ///
    /// # Errors
    /// That of the value's `Display`.
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
    /// The first placeholder that gave nothing, and how.
    wrong: Option<(&'static str, &'static str)>,
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
        let rendered = value.render(&mut self.key);
        if rendered.is_err() {
            self.wrong.get_or_insert((source, "cannot be rendered"));
        } else if self.key.len() == before {
            self.wrong.get_or_insert((source, "is empty"));
        }
    }

    /// The key, unless a placeholder rendered to nothing, or to a part of it: that would be one lock for all.
    ///
    /// # Errors
    /// [`Error::InvalidKey`], naming the placeholder.
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
#[derive(Default)]
pub struct Keys {
    pub(super) keys: Vec<String>,
    /// The first that could not be made.
    pub(super) wrong: Option<Error>,
}

impl Keys {
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
    note = "one key goes into `key = ..`, or without the dots into the list",
    note = "numbers and what is borrowed are made texts: `..ids.iter().map(|id| format!(\"item:{{id}}\"))`"
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

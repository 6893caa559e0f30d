//! Collects errors, so that all mistakes in one attribute are reported at once.

use syn::{Error, Result};

/// The errors so far, combined into one.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the value of a result, or collects its error.
    pub(crate) fn handle<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Returns `value`, or the collected errors.
    pub(crate) fn finish_with<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

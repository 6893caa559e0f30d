//! Errors so far: all mistakes are reported that have a place of their own, each once.

use syn::{Error, Result};

/// None yet, or several in one.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn handle<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn finish_with<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

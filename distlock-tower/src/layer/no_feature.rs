//! What is said about a key from a body whose format needs a feature: the methods exist only to explain themselves.

use super::{LockLayer, Unkeyed};
use crate::key::WholeBody;

/// Implemented by nothing.
#[cfg(not(feature = "json"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`key_json` needs the feature `json` of the crate `distlock-tower`",
    label = "needs the feature `json`",
    note = "`json` is on by default: without `default-features = false` it is there, or with `features = [\"json\"]`"
)]
pub trait NeedsJson {}

/// Implemented by nothing.
#[cfg(not(feature = "form"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`key_form` needs the feature `form` of the crate `distlock-tower`",
    label = "needs the feature `form`",
    note = "in Cargo.toml: `features = [\"form\"]`"
)]
pub trait NeedsForm {}

impl<S> Unkeyed<S> {
    #[cfg(not(feature = "json"))]
    #[doc(hidden)]
    pub fn key_json<F>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        Self: NeedsJson,
    {
        drop(key);
        self.key_from_body(limit, |_, _| String::new())
    }

    #[cfg(not(feature = "form"))]
    #[doc(hidden)]
    pub fn key_form<F>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        Self: NeedsForm,
    {
        drop(key);
        self.key_from_body(limit, |_, _| String::new())
    }
}

//! The holds in whose critical sections an acquisition waits, as its scopes know them.

use std::fmt;

use uuid::Uuid;

use crate::resource::key::Key;
use crate::resource::owner::Owner;

/// The scopes around an acquisition.
pub(crate) trait Around: fmt::Debug + Send + Sync {
    /// The holds of this client in whose critical sections the acquisition waits.
    fn holds(&self, client: Uuid) -> Vec<(Owner, Key)>;
}

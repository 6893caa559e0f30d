//! What is asked of a guard that something is to be nested into, and the holds around an acquisition.

use std::fmt;

use uuid::Uuid;

use super::term::Term;
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::resource::key::Key;
use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Why a guard could not be nested into a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NestError {
    /// The scope has ended, so the acquisition is an ordinary one.
    Closed,
    /// The hold is lost, and with it everything that runs in its scope.
    Lost(Loss),
    /// The hold has as many entries as one may have.
    TooMany,
}

impl NestError {
    /// The error for the user; `None` if the acquisition is an ordinary one.
    pub(crate) fn into_error(self, key: &str) -> Option<Error> {
        match self {
            Self::Closed => None,
            Self::Lost(loss) => Some(Error::lost(key, loss)),
            Self::TooMany => Some(Error::Unsupported {
                key: key.to_owned(),
                reason: "one owner enters a read lock at most 1000 times, because each entry is a key in the server; end some \
                         of its guards, or acquire the lock outside of the scope",
            }),
        }
    }
}

/// A guard that something is to be nested into, with the scope that shows it.
pub(super) struct EnclosingGuard<'a> {
    /// Whether the scope has ended.
    pub(super) closed: &'a AtomicBool,
    /// Whether the guard has ended.
    pub(super) ended: &'a AtomicBool,
    pub(super) is_left_alone: bool,
    pub(super) term: Term,
    pub(super) now: Tick,
}

impl EnclosingGuard<'_> {
    /// Whether the scope or the guard has ended. Called under the hold's mutex, under which both flags are set.
    pub(super) fn has_ended(&self) -> bool {
        // Acquire: pairs with `Hold::close` and `State::leave`.
        self.closed.load(Ordering::Acquire) || self.ended.load(Ordering::Acquire)
    }
}

/// The scopes around an acquisition: the holds in whose critical sections it waits.
pub(crate) trait Around: fmt::Debug + Send + Sync {
    /// The holds of this client in whose critical sections the acquisition waits.
    fn holds(&self, client: Uuid) -> Vec<(Owner, Key)>;
}

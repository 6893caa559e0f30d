//! The locks of one acquisition.

use std::slice;
use std::sync::Arc;

use super::handle::Handle;
use crate::error::Error;

/// The locks that are to be acquired together.
#[derive(Clone, Debug)]
pub(crate) enum LockSet {
    One(Handle),
    /// All of these, or none.
    All(Arc<[Handle]>),
    /// A majority of these, each on another server.
    Quorum(Arc<[Handle]>),
    /// No lock: the input was refused with this error.
    Refused(Box<Error>),
}

impl LockSet {
    pub(super) fn handles(&self) -> &[Handle] {
        match self {
            Self::One(handle) => slice::from_ref(handle),
            Self::All(handles) | Self::Quorum(handles) => handles,
            Self::Refused(_) => &[],
        }
    }

    /// Gives each client a new identity if this process is a copy of the one that made it.
    #[inline]
    pub(super) fn look(&self) {
        match self {
            Self::One(handle) => handle.look(),
            Self::All(handles) | Self::Quorum(handles) => Self::look_at(handles),
            Self::Refused(_) => {}
        }
    }

    fn look_at(handles: &[Handle]) {
        let mut before: Option<&Handle> = None;
        for handle in handles {
            // Those of a multi-lock are of one client.
            if !before.is_some_and(|before| before.is_of_client_of(handle)) {
                handle.look();
            }
            before = Some(handle);
        }
    }

    /// Whether a client is closed, and not only under a former identity.
    pub(super) fn are_closed(&self) -> bool {
        let handles = self.handles();
        // Input that was refused has no client that could start again.
        handles.is_empty() || handles.iter().any(Handle::is_closed)
    }
}

//! What a server says when it refuses a key.

use std::time::Duration;

use crate::error::{Blocker, HeldBy};

/// A key of an attempt was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The index of the key.
    pub(crate) at: usize,
    pub(crate) by: RefusedBy,
}

/// Why a key was refused.
#[derive(Debug)]
pub(crate) enum RefusedBy {
    /// Another owner holds it, for this long.
    Owner {
        ttl: Option<Duration>,
        holder: Option<Box<HeldBy>>,
    },
    /// The semaphore does not exist yet, so nobody holds it.
    Unset,
}

impl RefusedBy {
    /// What is left of the lease of the owner that holds the key, if the server has said so.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Owner { ttl, .. } => *ttl,
            Self::Unset => None,
        }
    }

    /// The owner that holds the key, if the server has named it.
    pub(super) fn holder(&self) -> Option<&HeldBy> {
        match self {
            Self::Owner { holder, .. } => holder.as_deref(),
            Self::Unset => None,
        }
    }

    /// Takes the name of the owner that holds the key.
    pub(super) fn take_holder(&mut self) -> Option<Box<HeldBy>> {
        match self {
            Self::Owner { holder, .. } => holder.take(),
            Self::Unset => None,
        }
    }

    /// What blocks the acquisition, for its error.
    pub(super) fn into_blocker(self) -> (Blocker, Option<Box<HeldBy>>) {
        match self {
            Self::Owner { ttl, holder } => (Blocker::Owner(ttl), holder),
            Self::Unset => (Blocker::PermitsNotSet, None),
        }
    }
}

//! What lets an attempt in where another owner is refused.

use crate::resource::owner::Owner;

/// The hold that lets an attempt in.
#[derive(Clone, Copy, Debug)]
pub enum Through {
    /// The write lock of this owner, in which a read is nested.
    Write(Owner),
    /// A hold that was detached from its guard: the owner of the attempt takes its place.
    Detached(DetachedOwner),
}

/// The owner of a hold that has no guard.
#[derive(Clone, Copy, Debug)]
pub struct DetachedOwner {
    /// The owner that the server knows.
    pub owner: Owner,
    /// The fencing token of its grant.
    pub token: Option<u64>,
}

impl Through {
    /// The owner of the write lock that a read is nested in.
    pub(crate) fn write(&self) -> Option<Owner> {
        match self {
            Self::Write(owner) => Some(*owner),
            Self::Detached(_) => None,
        }
    }

    /// The owner whose place the attempt takes.
    pub(crate) fn detached(&self) -> Option<DetachedOwner> {
        match self {
            Self::Write(_) => None,
            Self::Detached(detached) => Some(*detached),
        }
    }
}

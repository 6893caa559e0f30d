//! Which primitive a hold is of, and how the mechanism treats it, as data.

/// A primitive, as the mechanism and the backends tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Redisson's `RLock`.
    Reentrant,
}

impl Kind {
    /// May a release give the hold to the next local waiter, without the backend?
    ///
    /// Not where arrival order is global, nor where each grant needs a token of its own.
    pub(crate) fn hands_over(self) -> bool {
        match self {
            Self::Reentrant => true,
        }
    }
}

//! The shares of a guard: of one hold, of several holds, or of those of a Redlock.

use crate::hold::{Hold, HoldView};
use crate::local::{HoldShare, HoldShares};
use crate::wait::quorum::QuorumHold;

/// The shares of a guard. Those of several holds are boxed, because most guards have one, and a program keeps many guards. With
/// two variants it takes no more bytes than one share.
pub(super) enum Shares {
    One(HoldShare),
    More(Box<MoreShares>),
}

/// The shares of a guard of several holds.
pub(super) enum MoreShares {
    Several(SeveralShares),
    /// The shares of a Redlock, which change.
    Quorum(QuorumHold),
}

/// The shares of a guard of a multi-lock.
pub(super) struct SeveralShares {
    pub(super) view: HoldView,
    /// In the order of the view's members.
    pub(super) shares: HoldShares,
}

impl MoreShares {
    /// The shares, apart from those of a Redlock.
    pub(super) fn shares(&self) -> &[HoldShare] {
        match self {
            Self::Several(several) => &several.shares,
            Self::Quorum(_) => &[],
        }
    }

    pub(super) fn first(&self) -> &Hold {
        match self {
            Self::Several(several) => several.shares[0].hold_ref().hold(),
            Self::Quorum(quorum) => quorum.first().hold(),
        }
    }

    pub(super) fn token(&self) -> Option<u64> {
        match self {
            // The token of one key is no token of another one.
            Self::Several(_) => None,
            Self::Quorum(quorum) => quorum.first().hold().token(),
        }
    }

    pub(super) fn view(&self) -> HoldView {
        match self {
            Self::Several(several) => several.view.clone(),
            Self::Quorum(quorum) => quorum.view(),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Several(several) => several.view.is_held(),
            Self::Quorum(quorum) => quorum.is_held(),
        }
    }

    /// The shares, which the caller ends.
    pub(super) fn take(self) -> HoldShares {
        match self {
            Self::Several(several) => several.shares,
            Self::Quorum(quorum) => quorum.end(),
        }
    }
}

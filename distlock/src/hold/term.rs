//! How long a guard keeps its hold.

use std::time::Duration;

use crate::clock::{AtomicTick, Tick};
use crate::error::Loss;

/// How long a guard keeps the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// As long as the guard lives: the watchdog renews the hold.
    Kept,
    /// The same, but until this time at most.
    KeptUntil(Tick),
    /// Until this time, when the guard's own lease ends.
    Until(Tick),
}

impl Term {
    /// The term of a guard that the watchdog keeps from `now` on, for at most `max_hold`.
    pub(crate) fn kept(now: Tick, max_hold: Option<Duration>) -> Self {
        max_hold.map_or(Self::Kept, |most| Self::KeptUntil(now.after(most)))
    }

    /// The loss that the end of this term causes.
    pub(crate) fn loss(self) -> Loss {
        match self {
            Self::KeptUntil(_) => Loss::HeldTooLong,
            Self::Kept | Self::Until(_) => Loss::Expired,
        }
    }

    pub(crate) fn has_ended(self, now: Tick) -> bool {
        self.end() <= now
    }

    pub(crate) fn end(self) -> Tick {
        match self {
            Self::Kept => Tick::NEVER,
            Self::KeptUntil(end) | Self::Until(end) => end,
        }
    }
}

/// The term of a guard, whose own lease may be extended. It is written under the mutex of the hold.
#[derive(Debug)]
pub(super) struct GuardTerm {
    sort: Sort,
    end: AtomicTick,
}

#[derive(Clone, Copy, Debug)]
enum Sort {
    Kept,
    KeptUntil,
    Until,
}

impl GuardTerm {
    pub(super) fn new(term: Term) -> Self {
        let sort = match term {
            Term::Kept => Sort::Kept,
            Term::KeptUntil(_) => Sort::KeptUntil,
            Term::Until(_) => Sort::Until,
        };
        Self {
            sort,
            end: AtomicTick::new(term.end()),
        }
    }

    pub(super) fn get(&self) -> Term {
        match self.sort {
            Sort::Kept => Term::Kept,
            Sort::KeptUntil => Term::KeptUntil(self.end.get()),
            Sort::Until => Term::Until(self.end.get()),
        }
    }

    /// Moves the end of the guard's own lease to a later time.
    pub(super) fn extend(&self, end: Tick) {
        self.end.set(end);
    }
}

//! How long a guard keeps its hold.

use std::time::Duration;

use crate::clock::{AtomicTick, Tick};
use crate::error::Loss;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How long a guard keeps the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// As long as the guard lives: the watchdog renews the hold.
    Kept,
    /// The same, but until this time at most.
    KeptUntil(Tick),
    /// Until this time, when the guard's own lease ends.
    Until(Tick),
    /// Until this time, when the guard has a lease of its own and its limit comes before the end of that. Nothing renews the hold, as
    /// for [`Until`](Term::Until).
    UntilLimit(Tick),
}

impl Term {
    /// The term of a guard that the watchdog keeps from `now` on, for at most `max_hold`.
    pub(crate) fn kept(now: Tick, max_hold: Option<Duration>) -> Self {
        max_hold.map_or(Self::Kept, |most| Self::KeptUntil(now.after(most)))
    }

    /// The loss that the end of this term causes.
    pub(crate) fn loss(self) -> Loss {
        match self {
            Self::KeptUntil(_) | Self::UntilLimit(_) => Loss::HeldTooLong,
            Self::Kept | Self::Until(_) => Loss::Expired,
        }
    }

    /// Whether the guard has a lease of its own, which nothing renews.
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Until(_) | Self::UntilLimit(_))
    }

    pub(crate) fn has_ended(self, now: Tick) -> bool {
        self.end() <= now
    }

    pub(crate) fn end(self) -> Tick {
        match self {
            Self::Kept => Tick::NEVER,
            Self::KeptUntil(end) | Self::Until(end) | Self::UntilLimit(end) => end,
        }
    }
}

/// The term of a guard, whose own lease may be extended. It is written under the mutex of the hold.
#[derive(Debug)]
pub(super) struct GuardTerm {
    sort: Sort,
    /// Whether the guard's own lease was extended: the limit of the acquisition is no limit of an extension.
    is_extended: AtomicBool,
    end: AtomicTick,
}

#[derive(Clone, Copy, Debug)]
enum Sort {
    Kept,
    KeptUntil,
    Until,
    UntilLimit,
}

impl GuardTerm {
    pub(super) fn new(term: Term) -> Self {
        let sort = match term {
            Term::Kept => Sort::Kept,
            Term::KeptUntil(_) => Sort::KeptUntil,
            Term::Until(_) => Sort::Until,
            Term::UntilLimit(_) => Sort::UntilLimit,
        };
        Self {
            sort,
            is_extended: AtomicBool::new(false),
            end: AtomicTick::new(term.end()),
        }
    }

    pub(super) fn get(&self) -> Term {
        let end = self.end.get();
        match self.sort {
            Sort::Kept => Term::Kept,
            Sort::KeptUntil => Term::KeptUntil(end),
            // Relaxed, here and below, as the end: what depends on more than the end is read under the mutex.
            Sort::UntilLimit if !self.is_extended.load(Ordering::Relaxed) => Term::UntilLimit(end),
            Sort::Until | Sort::UntilLimit => Term::Until(end),
        }
    }

    /// Moves the end of the guard's own lease to a later time.
    pub(super) fn extend(&self, end: Tick) {
        self.is_extended.store(true, Ordering::Relaxed);
        self.end.set(end);
    }
}

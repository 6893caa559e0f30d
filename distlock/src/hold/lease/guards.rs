//! The guards of a hold, as its lease sees them: how long each keeps the hold, and what they ask for together.
//!
//! Plain data, as the lease itself.

use smallvec::SmallVec;

use crate::clock::Tick;
use crate::hold::term::Term;

/// How long the live guards of one hold keep it.
#[derive(Debug, Default)]
pub(crate) struct LeaseGuards {
    /// How many guards the watchdog keeps without limit.
    kept: u32,
    /// The terms of the other live guards.
    pub(super) ending: SmallVec<[Term; 1]>,
    /// The end of the longest fixed term. The server is asked for it also after that guard has ended.
    until: Tick,
    /// Whether the hold is never handed over. This is so after a guard had a lease of its own or admitted another hold,
    /// for example.
    stays: bool,
    /// Whether there is no guard yet, because other keys of the acquisition are missing.
    waits_for_one: bool,
    /// Whether the hold was lost while there was no guard.
    lost_before_one: bool,
}

// `#[inline]` where a method is called for each acquisition or release: the compiler may put this file and the lease into
// different units.
impl LeaseGuards {
    /// Adds a guard.
    #[inline]
    pub(super) fn join(&mut self, term: Term) {
        match term {
            Term::Kept => self.kept += 1,
            Term::KeptUntil(_) => self.ending.push(term),
            Term::Until(end) | Term::UntilLimit(end) => {
                self.ending.push(term);
                self.until = self.until.max(end);
                self.stays = true;
            }
        }
    }

    /// Removes a guard. The lease is never shortened, so a fixed lease of this guard stays in effect.
    #[inline]
    pub(crate) fn leave(&mut self, term: Term) {
        if term == Term::Kept {
            self.kept = self.kept.saturating_sub(1);
        // Any guard with an equal term will do: nothing else tells them apart here.
        } else if let Some(at) = self.ending.iter().position(|ending| *ending == term) {
            self.ending.swap_remove(at);
        }
    }

    /// Lengthens the term of a guard that has a lease of its own. The server is asked for it at once.
    pub(crate) fn extend(&mut self, term: Term, end: Tick) {
        if let Some(ending) = self.ending.iter_mut().find(|ending| **ending == term) {
            *ending = Term::Until(end);
        }
        self.until = self.until.max(end);
    }

    /// What was asked for the guards before is not asked for any more.
    pub(super) fn forget_ended(&mut self) {
        self.until = Tick::default();
    }

    /// From now on the hold is never handed over.
    pub(crate) fn keep_hold(&mut self) {
        self.stays = true;
    }

    /// Whether the hold is never handed over.
    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    /// The hold is not renewed before [`has_one`](LeaseGuards::has_one).
    pub(crate) fn wait_for_one(&mut self) {
        self.waits_for_one = true;
    }

    /// There is a guard. Returns whether it was waited for.
    pub(crate) fn has_one(&mut self) -> bool {
        std::mem::take(&mut self.waits_for_one)
    }

    /// Whether there is no guard yet.
    pub(crate) fn waits_for_one(&self) -> bool {
        self.waits_for_one
    }

    /// The hold is lost, and no guard has it.
    pub(crate) fn lose_before_one(&mut self) {
        self.lost_before_one = true;
    }

    /// Whether the hold was lost while no guard had it.
    pub(crate) fn was_lost_before_one(&self) -> bool {
        self.lost_before_one
    }

    /// Whether the watchdog keeps a guard without limit.
    pub(super) fn any_is_kept(&self) -> bool {
        self.kept > 0
    }

    /// Until when the watchdog renews for the guards that have a limit.
    #[inline]
    pub(super) fn renewed_until(&self) -> Tick {
        let kept = |term: &Term| match term {
            Term::KeptUntil(end) => Some(*end),
            Term::Kept | Term::Until(_) | Term::UntilLimit(_) => None,
        };
        self.ending
            .iter()
            .filter_map(kept)
            .max()
            .unwrap_or_default()
    }

    /// When the limit of the last guard ends the hold, even if the server keeps it for longer.
    #[inline]
    pub(super) fn limit(&self) -> Tick {
        let last = self.ending.iter().max_by_key(|term| term.end());
        match last {
            Some(Term::KeptUntil(end) | Term::UntilLimit(end)) if self.kept == 0 => *end,
            _ => Tick::NEVER,
        }
    }

    /// The end of the longest fixed term.
    pub(super) fn until(&self) -> Tick {
        self.until
    }
}

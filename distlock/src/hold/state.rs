//! What changes while a hold lives: its guards are counted, its lease is renewed, and it is handed over or taken back.
//!
//! All of it is under the mutex of the [`Hold`](super::Hold), and none of it sends anything or wakes anybody.

use std::panic::Location;
use std::time::Duration;

use super::lease::Lease;
use super::nesting::{EnclosingGuard, NestError};
use super::term::{GuardTerm, Term};
use crate::clock::Tick;
use crate::error::Loss;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A hold at one moment.
pub(crate) struct ShownHold {
    pub(crate) held: Duration,
    /// How long it is still held, unless it is renewed.
    pub(crate) left: Duration,
    pub(crate) count: u32,
    pub(crate) call_site: &'static Location<'static>,
}

/// The guard that has a hold, or had it last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestGuard {
    /// When it was granted the hold, or took it over.
    pub(crate) since: Tick,
    /// Where in the user's code it was acquired.
    pub(crate) call_site: &'static Location<'static>,
}

impl LatestGuard {
    /// How long it has had the hold at `now`.
    pub(crate) fn held_for(&self, now: Tick) -> Duration {
        now.since(self.since)
    }
}

/// What the release of a hold has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRelease {
    pub(crate) deadline: Tick,
    /// The key stays taken until then, also after its guards have ended.
    pub(crate) taken_until: Tick,
    /// The server has no copy of the hold after this time.
    pub(crate) latest_end: Tick,
    /// How many guards have handed the hold over since the server confirmed it.
    pub(crate) unconfirmed: u32,
}

/// How a guard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardEnd {
    /// Other guards of the hold remain.
    Shared,
    /// It was the last guard, and the hold is still held.
    Last {
        /// The lease is fresh and was kept by the watchdog alone, so the hold can be handed over.
        may_pass_on: bool,
        /// How long the guard had the hold.
        held: Duration,
    },
    /// The hold is lost, and the loss may not be declared yet. `last`: no guard is left.
    Lost { loss: Loss, last: bool },
}

/// A renewal that is to be sent.
pub(crate) struct DueRenewal {
    /// The count that it states.
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    /// When the hold is lost if the renewal is not answered.
    pub(crate) end: Tick,
}

/// What the watchdog has to do about a hold.
pub(crate) enum WatchdogAction {
    /// Look again at this time.
    Later(Tick),
    Renew(DueRenewal),
    /// It was lost just now.
    Lost(Loss),
    /// Nothing: the hold is over, and the code that has ended it does the rest.
    Over,
}

/// What an answer to a renewal has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// The hold is lost.
    Lost(Loss),
    /// The lease lasts longer than before, and a guard may have waited for that: the lease was shorter than the longest fixed term.
    Longer,
    /// Nothing that anybody waits for.
    AsBefore,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) lease: Lease,
    /// Its last guard was dropped, and its release has not begun. The side that resets this decides what becomes of the hold.
    pub(super) waits_for_release: bool,
    pub(super) count: u32,
    /// The count that the server confirmed last.
    pub(super) stated: u32,
    /// The key stays taken until then, also after its guards have ended.
    pub(super) taken_until: Tick,
    pub(super) latest_guard: LatestGuard,
    /// Whether the latest guard ended while the hold was held: the metrics have how long it had the hold.
    pub(super) is_counted: bool,
}

impl State {
    /// The state of a hold whose first guard was granted it.
    pub(super) fn granted(lease: Lease, now: Tick, call_site: &'static Location<'static>) -> Self {
        Self {
            lease,
            waits_for_release: false,
            count: 1,
            stated: 1,
            taken_until: Tick::default(),
            latest_guard: LatestGuard {
                since: now,
                call_site,
            },
            is_counted: false,
        }
    }

    /// Whether the server still has another count. A count of 0 is stated only by a release.
    pub(super) fn is_unstated(&self) -> bool {
        self.count != self.stated && self.count > 0
    }

    pub(super) fn at_release(&self) -> AtRelease {
        AtRelease {
            deadline: self.lease.deadline(),
            taken_until: self.taken_until,
            latest_end: self.lease.latest_end(),
            unconfirmed: self.lease.verification.unconfirmed(),
        }
    }

    /// How a guard with this term lost the hold. Call it only if the guard no longer holds the key.
    pub(super) fn loss_of(&self, term: Term, now: Tick) -> Loss {
        let of_guard = || term.has_ended(now).then(|| term.loss());
        let loss = self.lease.loss_at(now).or_else(of_guard);
        loss.unwrap_or(Loss::Expired)
    }

    /// Whether a guard or another hold may be nested into this enclosing guard.
    fn check(&self, enclosing: EnclosingGuard<'_>) -> Result<(), NestError> {
        if enclosing.has_ended() {
            return Err(NestError::Closed);
        }
        let EnclosingGuard {
            is_left_alone,
            term,
            now,
            ..
        } = enclosing;
        if is_left_alone {
            return Err(NestError::Lost(Loss::NewIdentity));
        }
        if term.has_ended(now) || !self.lease.is_held(now) {
            return Err(NestError::Lost(self.loss_of(term, now)));
        }
        Ok(())
    }

    /// Counts another guard inside an enclosing one, unless that is over or the hold is lost. `most`: how often the hold may be
    /// entered.
    pub(super) fn nest(
        &mut self,
        enclosing: EnclosingGuard<'_>,
        term: Term,
        most: u32,
    ) -> Result<(), NestError> {
        self.check(enclosing)?;
        if self.count >= most {
            return Err(NestError::TooMany);
        }
        self.count += 1;
        self.lease.join(term);
        Ok(())
    }

    /// Admits another hold of the key, which may outlive this one. From now on this one is never handed over.
    pub(super) fn let_in(&mut self, enclosing: EnclosingGuard<'_>) -> Result<(), NestError> {
        self.check(enclosing)?;
        self.lease.guards.keep_hold();
        Ok(())
    }

    /// Moves the end of a guard's own lease to `end`, if that is later. The watchdog has to look at the hold after that.
    ///
    /// # Errors
    /// The loss, if the guard no longer holds the key.
    pub(super) fn extend(
        &mut self,
        guard: EnclosingGuard<'_>,
        own: &GuardTerm,
        end: Tick,
    ) -> Result<(), NestError> {
        self.check(guard)?;
        let term = own.get();
        if term.is_fixed() && term.end() < end {
            self.lease.guards.extend(term, end);
            own.extend(end);
        }
        Ok(())
    }

    /// Counts the first guard of a hold that was handed over. Returns `false` if too little of its lease is left.
    pub(super) fn succeed(
        &mut self,
        term: Term,
        call_site: &'static Location<'static>,
        now: Tick,
    ) -> bool {
        if !self.lease.may_pass_on(now) {
            return false;
        }
        self.count = 1;
        self.latest_guard = LatestGuard {
            since: now,
            call_site,
        };
        self.is_counted = false;
        self.lease.pass_on(term);
        true
    }

    /// Ends a guard with this term, and sets `ended`.
    pub(super) fn leave(&mut self, own: &GuardTerm, ended: &AtomicBool, now: Tick) -> GuardEnd {
        let term = own.get();
        // Release: pairs with the load in `HoldRef::has_ended`. Under the mutex, so that nothing nests into a guard that was
        // counted out (invariant 2).
        ended.store(true, Ordering::Release);
        // Before its term is removed, which may be the reason. In this section: a renewal that is confirmed from now on does not
        // lengthen a lease that was found to be over.
        let loss = self.lease.find_loss(now);
        self.lease.guards.leave(term);
        // Each guard leaves once, so the count is not 0 before. Saturating, because drops call this and must not panic.
        self.count = self.count.saturating_sub(1);
        let last = self.count == 0;
        self.is_counted = last && loss.is_none();
        match (loss, last) {
            (Some(loss), last) => GuardEnd::Lost { loss, last },
            (None, true) => GuardEnd::Last {
                may_pass_on: self.lease.may_pass_on(now),
                held: self.latest_guard.held_for(now),
            },
            (None, false) => GuardEnd::Shared,
        }
    }

    /// See [`Hold::next_check`](super::Hold::next_check).
    pub(super) fn next_check(&self) -> Tick {
        self.lease.next(self.is_unstated())
    }
}

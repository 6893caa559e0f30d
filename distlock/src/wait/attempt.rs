//! One owner's attempts on a key, and the promise that an owner whose fate is unknown is ended.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::HoldRefs;
use crate::backend::{Attempt, Attempted, Fault, Target};
use crate::clock::Tick;
use crate::config::RENEWALS_PER_LEASE;
use crate::hold::lease::Term;
use crate::hold::{Hold, HoldRef, InDoubtAttempt, PendingRelease, Session};
use crate::kind::Kind;
use crate::telemetry;

/// Attempts on keys that are granted together, each key under one owner, sent again where nobody answered. Dropped while
/// one of them is in doubt, or while the server knows an owner as a waiter, it hands the owners to the releaser.
#[derive(Debug)]
pub(super) struct Attempts {
    session: Arc<Session>,
    attempts: SmallVec<[Attempt; 1]>,
    /// How long the guards of what is granted keep it.
    terms: HoldTerms,
    doubt: Option<InDoubtAttempt>,
    /// The server keeps a place for the owner, for this long at most.
    placed_until: Option<Tick>,
}

/// How long guards keep what they are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldTerms {
    /// For the lease that was asked for, and not as long as the watchdog renews it.
    pub(super) fixed: bool,
    /// Where the watchdog does, for so long at most.
    pub(super) max_hold: Option<Duration>,
}

/// What one attempt came to.
#[derive(Debug)]
pub(super) enum Outcome {
    Granted(HoldRefs),
    /// The key at this place is another's, for so long.
    Held {
        at: usize,
        ttl: Option<Duration>,
    },
    /// It was granted too late to be of use, and given back: this owner is spent.
    TooLate,
    Failed(Fault),
}

impl Attempts {
    pub(super) fn new(
        session: &Arc<Session>,
        attempts: SmallVec<[Attempt; 1]>,
        terms: HoldTerms,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            attempts,
            terms,
            doubt: None,
            placed_until: None,
        }
    }

    pub(super) fn target(&self, at: usize) -> &Target {
        &self.attempts[at].target
    }

    /// Asks once. `latest`: a grant after this time is given back.
    pub(super) async fn once(&mut self, latest: Tick) -> Outcome {
        let sent = self.session.now();
        let before = self.doubt;
        // A hold lasts for its lease, and who comes too late for that stands in the way as a waiter.
        let lasts = |attempt: &Attempt| attempt.lease.max(attempt.place.unwrap_or_default());
        let longest = self.attempts.iter().map(lasts).max();
        self.doubt = Some(InDoubtAttempt {
            epoch: before.map_or_else(|| self.session.backend.epoch(), |doubt| doubt.epoch),
            until: sent.after(longest.unwrap_or_default()),
        });
        for attempt in &mut self.attempts {
            if attempt.target.resource.kind == Kind::Fenced {
                attempt.above = self.session.highest_token(&attempt.target.resource.key);
            }
        }
        let answer = match self.attempts.as_slice() {
            [one] => self.session.backend.attempt(one).await.map(|one| (0, one)),
            all => self.session.backend.attempt_all(all).await,
        };
        match answer {
            Ok((_, Attempted::Granted { token })) => {
                self.placed_until = None;
                self.granted(sent, token, latest, before)
            }
            Ok((at, Attempted::Held { ttl })) => {
                self.doubt = before;
                self.placed_until = self.attempts[at].place.map(|place| {
                    let longest = self.session.now().after(ttl.unwrap_or_default());
                    longest.after(place)
                });
                Outcome::Held { at, ttl }
            }
            Err(fault) => {
                if fault.was_refused() {
                    self.doubt = before;
                }
                Outcome::Failed(fault)
            }
        }
    }

    /// A guard is never handed out with less than the part of its lease in which it would be renewed.
    fn granted(
        &mut self,
        sent: Tick,
        token: Option<u64>,
        latest: Tick,
        before: Option<InDoubtAttempt>,
    ) -> Outcome {
        let now = self.session.now();
        let of_use = |attempt: &Attempt| {
            let left = sent.after(attempt.lease).left(now);
            now <= latest && left >= attempt.lease / RENEWALS_PER_LEASE
        };
        if let Some(late) = self.attempts.iter().find(|attempt| !of_use(attempt)) {
            telemetry::late_grant(&late.target.resource.key, late.target.owner);
            return Outcome::TooLate;
        }
        self.doubt = None;
        let hold = |attempt: &Attempt| self.hold(attempt, sent, token, before);
        Outcome::Granted(self.attempts.iter().map(hold).collect())
    }

    fn hold(
        &self,
        attempt: &Attempt,
        sent: Tick,
        token: Option<u64>,
        doubt: Option<InDoubtAttempt>,
    ) -> Arc<HoldRef> {
        let Attempt { target, lease, .. } = attempt;
        if let Some(token) = token {
            self.session.saw_token(&target.resource.key, token);
        }
        let term = if self.terms.fixed || !target.resource.kind.has_lease() {
            Term::Until(sent.after(*lease))
        } else {
            Term::kept(sent, self.terms.max_hold)
        };
        let watchdog = self.session.config.watchdog_timeout;
        let hold_ref = Hold::granted((target, token), (sent, *lease), term, watchdog, doubt);
        if self.attempts.len() > 1 {
            hold_ref.hold().keep_to_its_guards();
        }
        hold_ref
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        let (doubt, placed_until) = (self.doubt.take(), self.placed_until);
        for attempt in self.attempts.drain(..) {
            let pending = match (doubt, placed_until) {
                (Some(doubt), _) => {
                    PendingRelease::of_attempt(attempt.target, doubt.until, doubt.epoch)
                }
                (None, Some(until)) => PendingRelease::of_place(attempt.target, until),
                (None, None) => return,
            };
            self.session.release_later(pending);
        }
    }
}

//! One owner's attempts on a key, and the promise that an owner whose fate is unknown is ended.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, Attempted, Fault, Target};
use crate::clock::Tick;
use crate::config::RENEWALS_PER_LEASE;
use crate::hold::lease::Term;
use crate::hold::{Debt, Hold, Keeper, Tenure};
use crate::kind::Kind;
use crate::telemetry;

/// Attempts under one owner, each sent again where nobody answered. Dropped while one of them is in doubt, or while the
/// server knows the owner as a waiter, it hands the owner to the releaser.
#[derive(Debug)]
pub(super) struct Attempts {
    keeper: Arc<Keeper>,
    attempt: Attempt,
    /// The watchdog renews what is granted.
    kept: bool,
    doubt: Option<Doubt>,
    /// The server keeps a place for the owner, for this long at most.
    placed_until: Option<Tick>,
}

/// An attempt that may have been carried out, or may still be.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    epoch: u64,
    until: Tick,
}

/// What one attempt came to.
#[derive(Debug)]
pub(super) enum Outcome {
    Granted(Arc<Tenure>),
    Held {
        ttl: Option<Duration>,
    },
    /// It was granted too late to be of use, and given back: this owner is spent.
    TooLate,
    Failed(Fault),
}

impl Attempts {
    pub(super) fn new(keeper: &Arc<Keeper>, attempt: Attempt, kept: bool) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            attempt,
            kept,
            doubt: None,
            placed_until: None,
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.attempt.target
    }

    /// Asks once. `latest`: a grant after this time is given back.
    pub(super) async fn once(&mut self, latest: Tick) -> Outcome {
        let sent = self.keeper.now();
        let before = self.doubt;
        self.doubt = Some(Doubt {
            epoch: before.map_or_else(|| self.keeper.backend.epoch(), |doubt| doubt.epoch),
            until: sent.after(self.attempt.lease),
        });
        if self.attempt.target.kind == Kind::Fenced {
            self.attempt.above = self.keeper.highest_token(&self.attempt.target.key);
        }
        let answer = self.keeper.backend.attempt(&self.attempt).await;
        match answer {
            Ok(Attempted::Granted { token }) => {
                self.placed_until = None;
                self.granted(self.keeper.counted_from(sent), token, latest, before)
            }
            Ok(Attempted::Held { ttl }) => {
                self.doubt = before;
                self.placed_until = self.attempt.place.map(|place| {
                    let longest = self.keeper.now().after(ttl.unwrap_or_default());
                    longest.after(place)
                });
                Outcome::Held { ttl }
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
        before: Option<Doubt>,
    ) -> Outcome {
        let Attempt { target, lease, .. } = &self.attempt;
        let now = self.keeper.now();
        let left = sent.after(*lease).left(now);
        if now > latest || left < *lease / RENEWALS_PER_LEASE {
            telemetry::late_grant(&target.key, target.owner);
            return Outcome::TooLate;
        }
        self.doubt = None;
        if let Some(token) = token {
            self.keeper.saw_token(&target.key, token);
        }
        let term = if self.kept {
            Term::Kept
        } else {
            Term::Until(sent.after(*lease))
        };
        let watchdog = self.keeper.config.watchdog_timeout;
        let doubt = before.map(|doubt| doubt.epoch);
        let granted = (target, token);
        Outcome::Granted(Hold::granted(
            granted,
            (sent, *lease),
            term,
            watchdog,
            doubt,
        ))
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        let target = || self.attempt.target.clone();
        let debt = match (self.doubt.take(), self.placed_until) {
            (Some(doubt), _) => Debt::of_attempt(target(), doubt.until, doubt.epoch),
            (None, Some(until)) => Debt::of_place(target(), until),
            (None, None) => return,
        };
        self.keeper.release_later(debt);
    }
}

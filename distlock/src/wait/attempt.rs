//! One owner's attempts on a key, and the promise that an owner whose fate is unknown is ended.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempted, Fault, Target};
use crate::clock::Tick;
use crate::config::RENEWALS_PER_LEASE;
use crate::hold::lease::Term;
use crate::hold::{Debt, Hold, Keeper, Tenure};
use crate::telemetry;

/// Attempts under one owner, each sent again where nobody answered. Dropped while one of them is in doubt, it hands the
/// owner to the releaser.
#[derive(Debug)]
pub(super) struct Attempts {
    keeper: Arc<Keeper>,
    target: Target,
    lease: Option<Duration>,
    doubt: Option<Doubt>,
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
    pub(super) fn new(keeper: &Arc<Keeper>, mut target: Target, lease: Option<Duration>) -> Self {
        target.owner = keeper.new_owner();
        Self {
            keeper: Arc::clone(keeper),
            target,
            lease,
            doubt: None,
        }
    }

    /// Asks once. `latest`: a grant after this time is given back.
    pub(super) async fn once(&mut self, latest: Tick) -> Outcome {
        let lease = self.lease.unwrap_or(self.keeper.config.watchdog_timeout);
        let sent = self.keeper.now();
        let before = self.doubt;
        self.doubt = Some(Doubt {
            epoch: before.map_or_else(|| self.keeper.backend.epoch(), |doubt| doubt.epoch),
            until: sent.after(lease),
        });
        let answer = self.keeper.backend.attempt(&self.target, lease).await;
        match answer {
            Ok(Attempted::Granted) => {
                self.granted((self.keeper.counted_from(sent), lease), latest, before)
            }
            Ok(Attempted::Held { ttl }) => {
                self.doubt = before;
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
        (sent, lease): (Tick, Duration),
        latest: Tick,
        before: Option<Doubt>,
    ) -> Outcome {
        let now = self.keeper.now();
        let left = sent.after(lease).left(now);
        if now > latest || left < lease / RENEWALS_PER_LEASE {
            telemetry::late_grant(&self.target.key, self.target.owner);
            return Outcome::TooLate;
        }
        self.doubt = None;
        let term = self
            .lease
            .map_or(Term::Kept, |lease| Term::Until(sent.after(lease)));
        let who = (self.target.kind, self.target.key.clone(), self.target.owner);
        let watchdog = self.keeper.config.watchdog_timeout;
        let doubt = before.map(|doubt| doubt.epoch);
        Outcome::Granted(Hold::granted(who, (sent, lease), term, watchdog, doubt))
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            let debt = Debt::of_attempt(self.target.clone(), doubt.until, doubt.epoch);
            self.keeper.release_later(debt);
        }
    }
}

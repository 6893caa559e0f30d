//! How the grant of an attempt becomes a hold.

use std::time::Duration;

use smallvec::smallvec;

use super::{Attempts, Outcome, Sent};
use crate::backend::Attempt;
use crate::clock::Tick;
use crate::config::RENEWALS_PER_LEASE;
use crate::hold::{Grant, HoldRef, InDoubtAttempt};
use crate::local::OpenShare;
use crate::telemetry::{self, LockType, Meter};

impl Attempts<'_> {
    /// Makes holds of a grant, which was noticed at `now`. The grant is too late after `latest`, or if less than a third of its lease
    /// is left.
    pub(super) fn granted(
        &mut self,
        sent: Sent,
        now: Tick,
        token: Option<u64>,
        latest: Tick,
        before: Option<InDoubtAttempt>,
    ) -> Outcome {
        // A rule of tests/model: late_grant_is_released.
        let is_useful = |attempt: &Attempt| {
            let counted = attempt.lease.saturating_sub(self.margin(attempt));
            let left = sent.at.after(counted).left(now);
            now <= latest && left >= counted / RENEWALS_PER_LEASE
        };
        // The attempts stay in doubt, so that their drop ends the owners.
        if let Some(late) = self.attempts.iter().find(|attempt| !is_useful(attempt)) {
            telemetry::late_grant(&late.target.resource.key, late.target.owner);
            return Outcome::TooLate;
        }
        let share = |attempt: &Attempt| self.share(attempt, sent, now, token, before);
        let shares = match self.attempts.as_slice() {
            [one] => smallvec![share(one)],
            all => all.iter().map(share).collect(),
        };
        // Not before the shares exist: until then the drop of the attempts ends the owners.
        self.in_doubt = None;
        Outcome::Granted(shares)
    }

    /// How long before the end of its lease a hold that is granted counts as ended.
    fn margin(&self, attempt: &Attempt) -> Duration {
        if attempt.target.resource.kind.has_lease() {
            self.session().config.lease_margin
        } else {
            Duration::ZERO
        }
    }

    /// The share of a grant, which ends the hold when it is dropped. From now on wakers, the log and the metrics may panic.
    fn share(
        &self,
        attempt: &Attempt,
        sent: Sent,
        now: Tick,
        token: Option<u64>,
        in_doubt: Option<InDoubtAttempt>,
    ) -> OpenShare {
        let target = &attempt.target;
        if let Some(token) = token {
            // Also if the hold is lost at once: the next attempt asks for a token above this one.
            self.session().tokens.saw(&target.resource.key, token);
        }
        let settings = &self.request.hold;
        let lock_type = self.request.lock_type;
        let is_of_quorum = lock_type == LockType::Red;
        // The parts of a Redlock count together, once there are enough of them.
        let meter = if is_of_quorum {
            Meter::none()
        } else {
            let class_of = self.session().config.metrics_key_class;
            Meter::new(lock_type, &target.resource.key, class_of)
        };
        let grant = Grant {
            client: &self.session().of_guards,
            attempt,
            settings,
            token,
            sent: sent.at,
            now,
            watchdog: self.session().config.watchdog_timeout,
            margin: self.margin(attempt),
            in_doubt,
            epoch: sent.epoch,
            meter,
            is_of_quorum,
        };
        let share = OpenShare::new(self.registry, HoldRef::granted(grant));
        // None of them is handed over alone: their guard ends all of them, by one command where it can.
        if self.attempts.len() > 1 {
            share.hold().with_lease(|lease| lease.guards.keep_hold());
        }
        if self.is_part {
            share.hold().with_lease(|lease| lease.guards.wait_for_one());
        }
        share
    }
}

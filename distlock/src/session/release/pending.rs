//! An owner that has to be ended, and what is known of its attempts.

use std::sync::Arc;

use crate::backend::{Released, Target};
use crate::clock::Tick;
use crate::hold::{AtRelease, Hold, InDoubtAttempt};
use crate::session::Session;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::telemetry::CountedRelease;

/// No connection of this client has this number.
const NO_CONNECTION: u64 = u64::MAX;

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseOutcome {
    /// The server answered.
    Answered(Released),
    /// The release was given up, and the lease frees the key.
    GivenUp,
}

impl ReleaseOutcome {
    /// How many other clients heard of the release, if the server said so.
    pub(super) fn others(self) -> Option<u32> {
        match self {
            Self::Answered(Released::Freed { others }) => Some(others),
            Self::Answered(Released::NotOurs) | Self::GivenUp => None,
        }
    }
}

/// An owner that has to be ended.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) target: Target,
    /// The key stays taken until then, with no holder.
    taken_until: Tick,
    /// It is not sent earlier: until then the key stays with its former owner, whose requests may be under way.
    pub(super) not_before: Tick,
    /// The server has no copy of the hold after this time.
    pub(crate) until: Tick,
    /// The connection over which an attempt of unknown outcome was sent.
    in_doubt: Option<u64>,
    /// Whether an attempt or a waiter is withdrawn, because it is unknown what the owner has in the server.
    pub(crate) withdraws: bool,
    /// It was answered or given up, and no caller waits for it. It is kept because an attempt may be carried out late.
    pub(crate) answered: bool,
    /// Counted in the metrics from its first try that failed until it is answered or given up.
    counted: Option<CountedRelease>,
    /// The hold that is over when the release is answered or given up.
    frees: Option<Arc<Hold>>,
    /// How many guards have handed the hold over since the server confirmed it.
    unconfirmed: u32,
    /// Whether a try that was sent may have been carried out, though its answer did not come.
    may_be_done: AtomicBool,
}

impl PendingRelease {
    /// The owner of a hold that was granted.
    pub(crate) fn of_hold(hold: &Hold, at_release: AtRelease) -> Self {
        let in_doubt = hold.in_doubt();
        // `taken_until` does not count: that time passes in the server anyway.
        let attempted = in_doubt.map(|attempt| attempt.until).unwrap_or_default();
        let until = at_release.latest_end.max(attempted);
        Self {
            taken_until: at_release.taken_until,
            in_doubt: in_doubt.map(|attempt| attempt.epoch),
            withdraws: false,
            unconfirmed: at_release.unconfirmed,
            ..Self::of_waiter(hold.target(), until)
        }
    }

    /// The owner of a hold that the server does not have. There is nothing to release, unless a copy of the server has the
    /// hold again.
    pub(crate) fn of_gone(hold: &Hold) -> Self {
        Self {
            answered: true,
            unconfirmed: 0,
            ..Self::of_hold(hold, hold.at_release())
        }
    }

    /// The owner of an attempt of unknown outcome.
    pub(crate) fn of_attempt(target: Target, attempt: InDoubtAttempt) -> Self {
        Self {
            in_doubt: Some(attempt.epoch),
            ..Self::of_waiter(target, attempt.until)
        }
    }

    /// The owner of a hold that has ended, of which an attempt may be carried out until `until`.
    pub(super) fn of_former(target: Target, until: Tick) -> Self {
        Self {
            // Another client may have sent it, over whatever connection.
            in_doubt: Some(NO_CONNECTION),
            answered: true,
            ..Self::of_waiter(target, until)
        }
    }

    /// The owner of a waiter that leaves the server's queue. The server keeps it there until `until` at most.
    pub(crate) fn of_waiter(target: Target, until: Tick) -> Self {
        Self {
            target,
            taken_until: Tick::default(),
            not_before: Tick::default(),
            until,
            in_doubt: None,
            withdraws: true,
            answered: false,
            counted: None,
            frees: None,
            unconfirmed: 0,
            may_be_done: AtomicBool::new(false),
        }
    }

    /// The hold is over when this release of it is answered or given up.
    pub(crate) fn that_frees(mut self, hold: &Arc<Hold>) -> Self {
        self.frees = Some(Arc::clone(hold));
        self
    }

    /// It was answered, and no caller waits for it.
    pub(super) fn that_is_answered(mut self) -> Self {
        self.answered = true;
        self
    }

    /// Its caller has sent it before. `may_be_done`: one of these tries may have been carried out.
    pub(super) fn after_tries(mut self, may_be_done: bool) -> Self {
        self.may_be_done = AtomicBool::new(may_be_done);
        self
    }

    /// Nothing is sent before this time.
    pub(super) fn not_before(mut self, time: Tick) -> Self {
        self.not_before = time;
        self
    }

    /// It repeats another release at this time, and nobody waits for it.
    pub(crate) fn again_at(mut self, time: Tick) -> Self {
        self.answered = true;
        self.not_before(time)
    }

    /// Ends the owner and leaves its permits taken.
    pub(super) fn without_permits(mut self) -> Self {
        self.target.permits = 0;
        self
    }

    /// The target of a release that is sent now.
    pub(crate) fn target_at(&self, now: Tick) -> Target {
        self.target.clone().taken_until(self.taken_until, now)
    }

    /// Records the connection over which the release was sent, while it is not answered; `None` if that try failed.
    pub(crate) fn note_sent(&self, over: Option<u64>) {
        if over.is_some() {
            // Relaxed, here and below: only the task that has the release looks at it.
            self.may_be_done.store(true, Ordering::Relaxed);
        }
        if let Some(hold) = &self.frees {
            hold.note_release_sent(over);
        }
    }

    /// A try has failed: it counts as pending from now on.
    pub(super) fn count(&mut self) {
        if !self.answered && self.counted.is_none() {
            self.counted = Some(CountedRelease::new());
        }
    }

    /// Whether an earlier try may have freed the key. If so, a server that does not have the hold has not lost it.
    pub(crate) fn may_be_done(&self) -> bool {
        self.may_be_done.load(Ordering::Relaxed)
    }

    /// Records that no try was carried out.
    pub(crate) fn note_not_done(&self) {
        self.may_be_done.store(false, Ordering::Relaxed);
    }

    /// Records how the release ended. Returns whether this was the first time.
    pub(crate) fn settle(&mut self, session: &Session, settled: ReleaseOutcome) -> bool {
        // First: the waiters that are woken below, and the metrics, may panic.
        let was_answered = std::mem::replace(&mut self.answered, true);
        // It counts until the waiters are woken.
        let _counted = self.counted.take();
        if let Some(hold) = self.frees.take() {
            session.freed(&hold, settled.others());
        }
        !was_answered
    }

    /// The server does not have the hold that was to be released, and no loss was announced.
    pub(crate) fn found_lost(&self, session: &Session) {
        if let Some(hold) = &self.frees {
            session.found_lost(hold);
        }
    }

    /// How many guards have handed the hold over since the server confirmed it. Call it when the release is sent for the
    /// first time: later tries may find that an earlier one has freed the key.
    pub(crate) fn take_unconfirmed(&mut self) -> u32 {
        std::mem::take(&mut self.unconfirmed)
    }

    /// Epoch of the unanswered attempt. The server may still execute it until a later connection gets an answer.
    pub(crate) fn in_doubt_over(&self) -> Option<u64> {
        self.in_doubt
            .filter(|_| self.target.resource.kind.has_lease())
    }

    /// Whether an attempt may be carried out after a release that was answered over connection `epoch`.
    ///
    /// This cannot happen for kinds without a lease, because the server remembers that their owner has ended.
    pub(crate) fn may_come_late(&self, epoch: u64) -> bool {
        self.in_doubt_over()
            .is_some_and(|sent_over| sent_over != epoch)
    }
}

//! A release that its caller sends, and repeats until it is answered.

use std::sync::Arc;

use scopeguard::defer;
use smallvec::{SmallVec, smallvec};

use super::ending::Ending;
use super::pending::{PendingRelease, ReleaseOutcome};
use super::send::{ReleaseAnswer, send};
use crate::backend::{Released, Target};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{AtRelease, Hold};
use crate::resource::key::Key;
use crate::session::Session;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::foreign;
use crate::telemetry;

/// The release of a hold that was just ended, from the end of its renewals to its answer. Its caller sends it. If it is dropped
/// before it is answered, it goes to the releaser.
#[derive(Debug)]
pub(crate) struct Release {
    session: Arc<Session>,
    hold: Arc<Hold>,
    /// `None` once it is answered, or has gone to somebody else. What the releaser would need is made of it: few releases go there,
    /// and this value is moved often.
    at_release: Option<AtRelease>,
    /// When the renewals ended. The caller sends the release at once.
    since: Tick,
    /// When the hold is lost.
    deadline: Tick,
    /// The loss, if the guard's own term was over before the release.
    late: Option<Loss>,
    /// How many guards have handed the hold over since the server confirmed it.
    unconfirmed: u32,
    /// Whether a try that was sent may have been carried out, though its answer did not come.
    may_be_done: AtomicBool,
}

impl Release {
    /// A release of a hold that is not renewed any more since `since`.
    pub(super) fn new(
        session: &Arc<Session>,
        hold: &Arc<Hold>,
        since: Tick,
        at_release: AtRelease,
    ) -> Self {
        // Counted without a reference to the session, which this has itself. The drop counts it out.
        session.releaser.endings.begin();
        Self {
            session: Arc::clone(session),
            hold: Arc::clone(hold),
            at_release: Some(at_release),
            since,
            deadline: at_release.deadline,
            late: None,
            unconfirmed: 0,
            may_be_done: AtomicBool::new(false),
        }
    }

    /// The release as somebody else sends it. Its hold is over when it is answered or given up.
    fn pending(&self, at_release: AtRelease) -> PendingRelease {
        let pending = PendingRelease::of_hold(&self.hold, at_release).that_frees(&self.hold);
        // Relaxed, as in `note_sent`.
        pending.after_tries(self.may_be_done.load(Ordering::Relaxed))
    }

    fn leave_to_releaser(mut self, change: impl FnOnce(PendingRelease) -> PendingRelease) {
        if let Some(at_release) = self.at_release.take() {
            let pending = self.pending(at_release);
            self.session.release_later(change(pending));
        }
    }

    /// The guard's own term was over before the release: its caller learns of this loss.
    pub(crate) fn after_its_term(mut self, loss: Option<Loss>) -> Self {
        self.late = loss;
        self
    }

    /// Leaves the release to the background, where it is sent at this time.
    pub(crate) fn at(self, time: Tick) {
        self.leave_to_releaser(|pending| pending.not_before(time));
    }

    /// Ends the owner in the background, and leaves its permits taken.
    pub(crate) fn leave_permits(self) {
        self.leave_to_releaser(PendingRelease::without_permits);
    }

    /// Sends nothing: the lease ends the owner.
    pub(crate) fn abandon(mut self) {
        self.give_up();
    }

    /// Sends nothing, as [`abandon`](Self::abandon): somebody else may end the owner before its lease does. Returns whether an
    /// attempt of the owner may still be carried out. Then the owner is ended again after its lease, which that attempt would
    /// lengthen.
    pub(crate) fn detach(mut self) -> bool {
        let Some(pending) = self.give_up() else {
            return false;
        };
        let may_come_late = pending.may_come_late(self.session.backend.epoch(self.key()));
        if may_come_late {
            let end = pending.until;
            self.session.release_later(pending.not_before(end));
        }
        may_come_late
    }

    fn give_up(&mut self) -> Option<PendingRelease> {
        let at_release = self.at_release.take()?;
        let mut pending = self.pending(at_release);
        let _was_not_counted = pending.settle(&self.session, ReleaseOutcome::GivenUp);
        Some(pending)
    }

    /// Puts the release into the releaser's list, for the task that is at work there.
    pub(super) fn list(mut self) {
        if let Some(at_release) = self.at_release.take() {
            self.session.releaser.add(self.pending(at_release));
        }
        // The drop may wake a close, and a waker may panic. By then the release is in the list.
    }

    /// Whether one command can release both.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let slot = |one: &Self| one.session.backend.home(one.key()).slot;
        let plain =
            |one: &Self| one.hold.resource.kind.is_plain_lock() && one.taken_until() <= one.since;
        Arc::ptr_eq(&self.session, &other.session)
            && plain(self)
            && plain(other)
            && slot(self) == slot(other)
    }

    /// Sends the release, and waits for the answer.
    ///
    /// # Errors
    /// The hold was lost, or the server did not answer or refused. In the last two cases the release goes to the releaser.
    // Not an `async fn`, whose future would have the release twice.
    pub(crate) fn confirm(mut self) -> impl Future<Output = Result<(), Error>> {
        self.take_unconfirmed();
        async move {
            let targets = |now| smallvec![self.target_at(now)];
            let note_sent = |over| self.note_sent(over);
            let sent = send(&self.session, targets, note_sent, self.since, self.deadline);
            // The drop leaves the release to the background.
            let answer = sent
                .await
                .map_err(|(fault, after)| fault.into_error(self.key(), after))?;
            match answer.released.first() {
                Some(released) => self.settle(*released, answer.doubtful, answer.epoch),
                None => Ok(()),
            }
        }
    }

    fn key(&self) -> &Key {
        &self.hold.resource.key
    }

    /// The key stays taken until then.
    fn taken_until(&self) -> Tick {
        let at_release = self.at_release.as_ref();
        at_release.map(|at| at.taken_until).unwrap_or_default()
    }

    fn target_at(&self, now: Tick) -> Target {
        let target = self.hold.target();
        target.taken_until(self.taken_until(), now)
    }

    /// Called when the release is sent for the first time. A later try may find that an earlier one has freed the key.
    fn take_unconfirmed(&mut self) {
        if let Some(at_release) = &mut self.at_release {
            self.unconfirmed = std::mem::take(&mut at_release.unconfirmed);
        }
    }

    /// Records the connection over which the release was sent, while it is not answered; `None` if that try failed.
    fn note_sent(&self, over: Option<u64>) {
        if over.is_some() {
            // Relaxed: only the task that has the release looks at it.
            self.may_be_done.store(true, Ordering::Relaxed);
        }
        self.hold.note_release_sent(over);
    }

    /// Interprets the answer. `NotOurs` is a loss, unless an earlier try of this release may have been carried out
    /// without an answer and the lease has not ended yet.
    fn settle(mut self, released: Released, doubtful: bool, epoch: u64) -> Result<(), Error> {
        // A rule of tests/model: missing_hold_after_an_earlier_try_is_no_loss.
        let key = self.key().text();
        let ended = match released {
            Released::NotOurs if !doubtful || self.session.now() >= self.deadline => {
                self.session.found_lost(&self.hold);
                telemetry::ended_before_the_loss(self.key(), self.hold.owner(), self.unconfirmed);
                Err(Error::lost(key, Loss::Gone))
            }
            Released::Freed { .. } | Released::NotOurs => match self.late {
                Some(loss) => Err(Error::lost(key, loss)),
                None => Ok(()),
            },
        };
        self.answered(released, epoch);
        ended
    }

    /// Records the answer to a try that was sent over connection `epoch` or a later one. If an attempt may be carried out
    /// late, the releaser repeats the release.
    fn answered(&mut self, released: Released, epoch: u64) {
        self.session.tracking.wrote(&self.hold.resource);
        let Some(at_release) = self.at_release.take() else {
            return;
        };
        let Self { session, hold, .. } = self;
        // Also if a waker that the end of the hold wakes panics.
        defer! {
            // A server in memory has no copy that could bring the hold back.
            if hold.in_doubt().is_some() || session.backend.has_connection() {
                let pending = PendingRelease::of_hold(hold, at_release).that_is_answered();
                session.keep_answered(pending, epoch);
            }
        }
        session.freed(hold, ReleaseOutcome::Answered(released).others());
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // Dropped last: by then the release is in the list.
        let _ending = Ending::begun(&self.session);
        if let Some(at_release) = self.at_release.take() {
            self.session.release_later(self.pending(at_release));
            // One of the tries without an answer may have ended the hold: then a hold that is missing is no loss.
        }
    }
}

/// Sends several releases of one client in one command, and returns the result of each.
// Not an `async fn`, whose future would have the releases twice.
pub(super) fn confirm_all(
    mut releases: SmallVec<[Release; 1]>,
) -> impl Future<Output = Vec<Result<(), Error>>> {
    releases.iter_mut().for_each(Release::take_unconfirmed);
    async move {
        let Some(first) = releases.first() else {
            return Vec::new();
        };
        let targets = |now| releases.iter().map(|one| one.target_at(now)).collect();
        let deadlines = releases.iter().map(|one| one.deadline);
        // As long as one of the holds may be in the server, another try is worth while.
        let latest = deadlines.max().unwrap_or_default();
        let note_sent = |over| releases.iter().for_each(|one| one.note_sent(over));
        match send(&first.session, targets, note_sent, first.since, latest).await {
            Ok(ReleaseAnswer {
                released,
                doubtful,
                epoch,
            }) => {
                let mut results = Vec::with_capacity(releases.len());
                // Each of them, also if the log or the metrics panic at the loss of another one.
                foreign::each(releases.into_iter().zip(released), |(release, released)| {
                    results.push(release.settle(released, doubtful, epoch));
                });
                results
            }
            // The drops leave the releases to the background.
            Err((fault, after)) => releases
                .iter()
                .map(|one| Err(fault.clone().into_error(one.key(), after)))
                .collect(),
        }
    }
}

//! A release that its caller sends, and repeats until it is answered.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use smallvec::{SmallVec, smallvec};

use super::pending::{PendingRelease, ReleaseOutcome};
use super::ticket::ReleaseTicket;
use crate::backend::{Fault, Released, Reply, Target, cause};
use crate::clock::Tick;
use crate::config::RETRY_BACKOFF;
use crate::error::{Error, Loss};
use crate::hold::Hold;
use crate::resource::key::Key;
use crate::session::Session;
use crate::telemetry;

/// A release that is to be sent and confirmed. If it is dropped before that, it continues in the background.
pub(crate) struct Release {
    hold: Arc<Hold>,
    ticket: ReleaseTicket,
    deadline: Tick,
    /// The loss, if the guard's own term was over before the release.
    late: Option<Loss>,
    /// How many guards have handed the hold over since the server confirmed it.
    unconfirmed: u32,
}

impl Release {
    /// The ticket is that of a hold that was just ended.
    pub(crate) fn new(hold: &Arc<Hold>, mut ticket: ReleaseTicket, late: Option<Loss>) -> Self {
        let unconfirmed = ticket.pending().map(PendingRelease::take_unconfirmed);
        Self {
            hold: Arc::clone(hold),
            ticket,
            deadline: hold.deadline(),
            late,
            unconfirmed: unconfirmed.unwrap_or_default(),
        }
    }

    /// Whether one command can release both.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let now = self.session().now();
        let slot = |one: &Self| one.session().backend.home(one.key()).slot;
        let plain =
            |one: &Self| one.hold.resource.kind.is_plain_lock() && one.ticket.taken_until() <= now;
        Arc::ptr_eq(self.session(), other.session())
            && plain(self)
            && plain(other)
            && slot(self) == slot(other)
    }

    pub(crate) async fn confirm(self) -> Result<(), Error> {
        let targets = |now| smallvec![self.target_at(now)];
        let note_sent = |over| self.ticket.note_sent(over);
        let sent = send(self.session(), targets, note_sent, self.deadline).await;
        // Dropping the ticket leaves the release to the background.
        let answer = sent.map_err(|(fault, after)| fault.into_error(self.key(), after))?;
        match answer.released.first() {
            Some(released) => self.settle(*released, answer.doubtful, answer.epoch),
            None => Ok(()),
        }
    }

    fn session(&self) -> &Arc<Session> {
        self.ticket.session()
    }

    fn key(&self) -> &Key {
        &self.hold.resource.key
    }

    fn target_at(&self, now: Tick) -> Target {
        let target = self.hold.target();
        target.taken_until(self.ticket.taken_until(), now)
    }

    /// Interprets the answer. `NotOurs` is a loss, unless an earlier try of this release may have been carried out
    /// without an answer and the lease has not ended yet.
    fn settle(self, released: Released, doubtful: bool, epoch: u64) -> Result<(), Error> {
        let key = self.key().text();
        let ended = match released {
            Released::NotOurs if !doubtful || self.session().now() >= self.deadline => {
                self.ticket.found_lost(self.session());
                telemetry::ended_before_the_loss(self.key(), self.hold.owner, self.unconfirmed);
                Err(Error::lost(key, Loss::Gone))
            }
            Released::Freed { .. } | Released::NotOurs => match self.late {
                Some(loss) => Err(Error::lost(key, loss)),
                None => Ok(()),
            },
        };
        self.ticket
            .settle(ReleaseOutcome::Answered(released), epoch);
        ended
    }
}

/// Sends several releases of one client in one command, and returns the result of each.
pub(crate) async fn confirm_all(
    releases: SmallVec<[Release; 1]>,
) -> SmallVec<[Result<(), Error>; 1]> {
    let Some(first) = releases.first() else {
        return SmallVec::new();
    };
    let session = Arc::clone(first.session());
    let targets = |now| releases.iter().map(|one| one.target_at(now)).collect();
    let deadlines = releases.iter().map(|one| one.deadline);
    let latest = deadlines.max().unwrap_or_default();
    let note_sent = |over| releases.iter().for_each(|one| one.ticket.note_sent(over));
    match send(&session, targets, note_sent, latest).await {
        Ok(Answer {
            released,
            doubtful,
            epoch,
        }) => releases
            .into_iter()
            .zip(released)
            .map(|(release, released)| release.settle(released, doubtful, epoch))
            .collect(),
        // Dropping the tickets leaves the releases to the background.
        Err((fault, after)) => releases
            .iter()
            .map(|one| Err(fault.clone().into_error(one.key(), after)))
            .collect(),
    }
}

type Answers = SmallVec<[Released; 1]>;

/// The answer to releases that were sent together.
struct Answer {
    released: Answers,
    /// Whether an earlier try may have been carried out before this one.
    doubtful: bool,
    /// The connection that they were sent over, or an earlier one. Releases that are sent together go to one server.
    epoch: u64,
}

/// Sends until an answer arrives or it is time to give up. Sending a release again is safe, because it states that the
/// owner holds nothing.
///
/// `note_sent` is told over which connection a try was sent and is not answered yet, and `None` when a try has failed.
async fn send(
    session: &Arc<Session>,
    targets: impl Fn(Tick) -> SmallVec<[Target; 1]>,
    note_sent: impl Fn(Option<u64>),
    deadline: Tick,
) -> Result<Answer, (Fault, Duration)> {
    let since = session.now();
    let give_up = since.after(session.config.unavailable_after).min(deadline);
    let (mut now, mut first_try, mut doubtful, mut last) = (since, true, false, None);
    let longest = session.config.longest_pause();
    let mut pause = RETRY_BACKOFF.first.min(longest);
    loop {
        // The backend bounds the first try. Later ones have less time left.
        let latest = if first_try { Tick::NEVER } else { give_up };
        let targets = targets(now);
        let first = targets.first().map(|target| &target.resource.key);
        let epoch = first.map_or(0, |key| session.backend.epoch(key));
        let answer = tokio::select! {
            biased;
            answer = send_once(session, &targets, || note_sent(Some(epoch))) => answer,
            // The fault of an earlier try says more than `no answer`.
            () = session.clock.sleep_until(latest) => {
                Err(last.unwrap_or_else(|| Fault::Unknown(cause("no answer"))))
            }
        };
        let fault = match answer {
            Ok(released) => {
                return Ok(Answer {
                    released,
                    doubtful,
                    epoch,
                });
            }
            Err(fault) => fault,
        };
        note_sent(None);
        now = session.now();
        if fault.is_final() || now >= give_up {
            return Err((fault, now.since(since)));
        }
        first_try = false;
        doubtful |= matches!(fault, Fault::Unknown(_));
        last = Some(fault);
        let until = now.after(pause).min(give_up);
        session.clock.sleep_until(until).await;
        now = session.now();
        pause = (pause * 2).min(longest);
    }
}

async fn send_once(
    session: &Session,
    targets: &[Target],
    note_sent: impl FnOnce(),
) -> Result<Answers, Fault> {
    match targets {
        [one] => Ok(smallvec![
            noting(session.backend.release(one), note_sent).await?
        ]),
        all => Ok(noting(session.backend.release_all(all), note_sent)
            .await?
            .into()),
    }
}

/// Calls `note_sent` when the command was sent and is not answered yet: its first poll sends it.
pub(super) async fn noting<T>(
    mut reply: Reply<'_, T>,
    note_sent: impl FnOnce(),
) -> Result<T, Fault> {
    match poll_immediate(&mut reply).await {
        Some(answer) => answer,
        None => {
            note_sent();
            reply.await
        }
    }
}

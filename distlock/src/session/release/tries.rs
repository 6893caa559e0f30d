//! The tries of the releaser's task to send one release.

use std::sync::Arc;

use super::in_flight::InFlight;
use super::pending::ReleaseOutcome;
use super::send::{as_released, note_when_sent};
use crate::backend::{Fault, Released, Target};
use crate::clock::Tick;
use crate::resource::key::Resource;
use crate::session::{Retry, Session};
use crate::telemetry;

/// How the tries to send a release ended.
enum TriesEnd {
    /// The last answer came to a release that was sent over this connection, or over a later one.
    Answered(u64),
    /// The server refused the release for good.
    Refused,
    /// No answer came until the server could have no copy of the hold any more.
    Unanswered,
}

/// Sends a release until nothing can be left of its owner in the server.
pub(super) async fn end_owner(mut in_flight: InFlight) {
    let session = Arc::clone(&in_flight.session);
    let mut failed_over = None;
    let not_before = in_flight.pending.as_ref().map(|one| one.not_before);
    if let Some(later) = not_before.filter(|time| *time > session.now()) {
        session.clock.sleep_until(later).await;
    }
    loop {
        let ending = retry_until_confirmed(&mut in_flight).await;
        let Some(pending) = &mut in_flight.pending else {
            return;
        };
        match (ending, pending.in_doubt_over()) {
            // An attempt may lie in the sockets of a server that hangs.
            (TriesEnd::Unanswered, Some(sent_over)) => {
                let failed = failed_over.unwrap_or(sent_over);
                let key = pending.target.resource.key.clone();
                failed_over = Some(session.backend.epoch_after(&key, failed).await);
                // The server runs again, and needs a moment until it has read everything.
                pending.until = session.now().after(session.config.response_timeout);
            }
            (ending, _) => {
                // Taken out, so that the drop does not put it back into the list.
                let pending = in_flight.pending.take();
                if let (Some(pending), TriesEnd::Answered(epoch)) = (pending, ending) {
                    session.remember(pending, epoch);
                }
                return;
            }
        }
    }
}

/// The tries to send one release.
struct Tries {
    session: Arc<Session>,
    retry: Retry,
    was_refused: bool,
    /// What they have come to so far.
    ending: TriesEnd,
}

/// One try, which was answered or has failed.
struct Try {
    target: Target,
    /// How many guards have handed the hold over since the server confirmed it.
    unconfirmed: u32,
    sent_over: u64,
    /// Whether an earlier try may have been carried out, also one of the caller, who did not wait for its answer.
    may_be_done: bool,
    outcome: Result<Released, Fault>,
}

/// Sends a release until it is confirmed for good, or until the server can have no copy of the hold any more.
async fn retry_until_confirmed(in_flight: &mut InFlight) -> TriesEnd {
    // A rule of tests/model: release_is_sent_until_it_is_answered.
    let session = Arc::clone(&in_flight.session);
    let mut tries = Tries {
        retry: Retry::new(&session, session.now()),
        session,
        was_refused: false,
        ending: TriesEnd::Unanswered,
    };
    loop {
        let Some(until) = in_flight.pending.as_ref().map(|pending| pending.until) else {
            return tries.ending;
        };
        let Some(one) = tries.send(in_flight, until).await else {
            return tries.ending;
        };
        let sent_over = one.sent_over;
        if tries.are_over(in_flight, one, until) {
            return tries.ending;
        }
        let Some(pending) = &mut in_flight.pending else {
            return tries.ending;
        };
        pending.note_sent(None);
        pending.count();
        let resource = pending.target.resource.clone();
        tries.pause(&resource, sent_over, until).await;
    }
}

impl Tries {
    /// Sends the release once. `None` if its time passed before it could be sent.
    async fn send(&self, in_flight: &mut InFlight, until: Tick) -> Option<Try> {
        let session = &self.session;
        let permits = session.releaser.permits.of(in_flight.server(session));
        let permit = permits.acquire().await;
        // Its time passed while it waited behind releases that were not answered. It would not be answered either.
        // A release whose time was over when it came is still sent once.
        if self.retry.since < until && session.now() >= until {
            drop(permit);
            in_flight.settle(ReleaseOutcome::GivenUp);
            return None;
        }
        let pending = in_flight.pending.as_mut()?;
        let target = pending.target_at(session.now());
        let unconfirmed = pending.take_unconfirmed();
        let sent_over = session.backend.epoch(&target.resource.key);
        let may_be_done = pending.may_be_done();
        let reply = if pending.withdraws {
            session.backend.withdraw(&target)
        } else {
            session.backend.release(&target)
        };
        let outcome = note_when_sent(reply, || pending.note_sent(Some(sent_over))).await;
        let outcome = as_released(&target, outcome);
        // Given back before the pause, so that other releases can be sent.
        drop(permit);
        Some(Try {
            target,
            unconfirmed,
            sent_over,
            may_be_done,
            outcome,
        })
    }

    /// Takes what has come of a try. Returns whether it was the last one.
    fn are_over(&mut self, in_flight: &mut InFlight, one: Try, until: Tick) -> bool {
        let is_over = self.session.now() >= until;
        match &one.outcome {
            Ok(released) => self.was_answered(in_flight, &one, *released, is_over),
            // No lease frees these permits. The release is retried, because the user may get the permission back, and the name of a
            // server may lead to one that can be used again.
            Err(fault @ (Fault::Denied(..) | Fault::Unsupported { .. }))
                if !is_over && !one.target.resource.kind.has_lease() =>
            {
                if !std::mem::replace(&mut self.was_refused, true) {
                    telemetry::release_refused(&one.target.resource.key, one.target.owner, fault);
                }
                false
            }
            Err(fault) if is_over || fault.is_final() => {
                // A release that was answered before is only repeated.
                if in_flight.settle(ReleaseOutcome::GivenUp) {
                    let (key, owner) = (&one.target.resource.key, one.target.owner);
                    telemetry::release_given_up(key, owner, fault, is_over);
                }
                if fault.is_final() {
                    self.ending = TriesEnd::Refused;
                }
                true
            }
            // The release is sent again, which is safe.
            Err(fault) => {
                let may_be_done = one.may_be_done || matches!(fault, Fault::Unknown(_));
                if let Some(pending) = in_flight.pending.as_ref().filter(|_| !may_be_done) {
                    pending.note_not_done();
                }
                false
            }
        }
    }

    /// The server has answered. Returns whether this was the last try: the release is repeated while an earlier attempt may be
    /// carried out behind it.
    fn was_answered(
        &mut self,
        in_flight: &mut InFlight,
        one: &Try,
        released: Released,
        is_over: bool,
    ) -> bool {
        // A rule of tests/model: release_is_repeated_while_an_attempt_may_come.
        let session = &self.session;
        let key = &one.target.resource.key;
        // Read after the answer: if this is still the attempt's connection, the release went over it as well.
        let epoch = session.backend.epoch(key);
        session.outages.answered_other(key);
        session.tracking.wrote(&one.target.resource);
        self.ending = TriesEnd::Answered(one.sent_over);
        let Some(pending) = &in_flight.pending else {
            return true;
        };
        if released == Released::NotOurs {
            telemetry::ended_before_the_loss(key, one.target.owner, one.unconfirmed);
            // After an outcome that is unknown, or the end of the lease, the hold may have ended as it should.
            if !one.may_be_done && !is_over {
                pending.found_lost(session);
            }
        }
        let may_come_late = pending.may_come_late(epoch);
        in_flight.settle(ReleaseOutcome::Answered(released));
        is_over || !may_come_late
    }

    /// Pauses before the next try, after one that was sent over this connection.
    async fn pause(&mut self, resource: &Resource, sent_over: u64, until: Tick) {
        let session = &self.session;
        let now = session.now();
        let next = now.after(self.retry.pause()).min(until);
        // The longest of the short pauses. A server that ends each connection at the release gets no more tries than this.
        let earliest = now.after(session.config.longest_pause()).min(next);
        session.clock.sleep_until(earliest).await;
        let key = &resource.key;
        crate::sync::select! {
            biased;
            () = session.clock.sleep_until(next) => {}
            // The outage is over: waiters would wait for the rest of the pause, which may be as long as the outage was.
            _ = session.backend.epoch_after(key, sent_over) => {
                self.retry.begin_again(session.now());
                return;
            }
        }
        // During one lease of the watchdog the pauses stay short, so that waiters do not wait for long. After that each
        // pause is twice as long as the last one, unless no lease frees the key.
        let short_until = self.retry.since.after(session.config.watchdog_timeout);
        if session.now() < short_until || !resource.kind.has_lease() {
            self.retry.lengthen();
        } else {
            self.retry.lengthen_without_limit();
        }
    }
}

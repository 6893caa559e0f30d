//! Renews a batch of holds by one command, and tells each of them the answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use scopeguard::defer;

use crate::backend::{Fault, Renewal};
use crate::clock::Tick;
use crate::config::{RENEWAL_FAILURES_TOLD_EVERY, RENEWALS_AT_ONCE};
use crate::hold::lease::Answer;
use crate::hold::{Confirmed, Hold};
use crate::session::Session;
use crate::sync::foreign;
use crate::telemetry;

/// A hold, the count to state and the lease to ask for.
pub(super) type Planned = (Arc<Hold>, u32, Duration);

/// Holds that are renewed together.
pub(super) struct Batch {
    pub(super) planned: Vec<Planned>,
    /// The numbers of these holds, and when each is lost if the renewal is not answered.
    pub(super) ends: Vec<(u64, Tick)>,
}

/// How many renewals have failed that the log has not told of. A server that refuses all of them would fill the log with a line for
/// each batch.
#[derive(Debug, Default)]
pub(super) struct UntoldFailures {
    told_at: Option<Tick>,
    renewals: usize,
}

impl UntoldFailures {
    /// So many more have failed. If it is time to tell that, returns how many others have failed since the last line.
    fn add(&mut self, failed: usize, now: Tick) -> Option<usize> {
        let told_ago = self.told_at.map(|at| now.since(at));
        if told_ago.is_some_and(|ago| ago < RENEWAL_FAILURES_TOLD_EVERY) {
            self.renewals += failed;
            return None;
        }
        self.told_at = Some(now);
        let others = std::mem::take(&mut self.renewals);
        // Those before a longer pause were renewed since, or are lost.
        let are_recent = told_ago.is_some_and(|ago| ago < 2 * RENEWAL_FAILURES_TOLD_EVERY);
        Some(if are_recent { others } else { 0 })
    }
}

pub(super) async fn renew(session: Arc<Session>, sent: Tick, batch: Batch) {
    let Batch { planned, ends } = batch;
    let batch: Vec<Renewal> = planned
        .iter()
        .map(|(hold, count, lease)| Renewal {
            target: hold.target(),
            count: *count,
            lease: *lease,
            track: session.tracking.is_to_track(hold),
        })
        .collect();
    // Before they are sent: so each answer comes over this connection or a later one.
    let epochs = planned
        .iter()
        .map(|(hold, ..)| session.backend.epoch(&hold.resource.key));
    let epochs: Vec<u64> = epochs.collect();
    let renewed = renewed_or_ends(&session, &batch, &ends).await;
    // After all else, also if a waker panics: the log and the metrics may panic each time.
    defer! { tell(&session, &batch, &renewed); }
    let answered = batch.iter().zip(&renewed).find(|(_, one)| one.is_ok());
    if let Some((renewal, _)) = answered {
        session.outages.answered_other(&renewal.target.resource.key);
    }
    let now = session.now();
    let mut checks = Vec::with_capacity(planned.len());
    let mut changed = Vec::new();
    for (((hold, count, lease), epoch), one) in planned.into_iter().zip(epochs).zip(&renewed) {
        // With the count that was sent: the present one may be another, and is then stated next.
        let (confirmed, next_check) = hold.renewed(sent, count, lease, answer(one), now);
        if !matches!(confirmed, Confirmed::Lost(_)) {
            checks.push((hold.number(), next_check));
        }
        if confirmed != Confirmed::AsBefore {
            changed.push((hold, confirmed, epoch));
        }
    }
    session.watchdog.schedule_checks(&checks);
    // Once all holds have their answers: a waker or the log may panic.
    foreign::each(changed, |(hold, confirmed, epoch)| match confirmed {
        Confirmed::Lost(loss) => session.lose(&hold, loss, epoch),
        Confirmed::Longer => hold.over.announce_change(),
        Confirmed::AsBefore => {}
    });
}

/// Renews a batch. Once the first of its holds would be lost, a check of each of them is planned for its `end`: losses do not wait
/// for the answer. Nearly always the answer comes before that, and no check is planned in vain.
async fn renewed_or_ends(
    session: &Session,
    batch: &[Renewal],
    ends: &[(u64, Tick)],
) -> Vec<Result<bool, Fault>> {
    let first_end = ends.iter().map(|(_, end)| *end).min();
    let mut asked = pin!(ask(session, batch));
    crate::sync::select! {
        biased;
        renewed = &mut asked => return renewed,
        () = session.clock.sleep_until(first_end.unwrap_or(Tick::NEVER)) => {}
    }
    session.watchdog.schedule_checks(ends);
    asked.await
}

/// Renews a batch. If the server refuses several holds, the reason may be a single one, such as a key that the user may no
/// longer access. Each of them is then renewed alone, so that none is lost because of another. Without a
/// connection none is repeated: the client renews all holds when the connection is re-established.
async fn ask(session: &Session, batch: &[Renewal]) -> Vec<Result<bool, Fault>> {
    let mut renewed = session.backend.renew(batch).await;
    if batch.len() > 1 {
        let was_refused = |at: &usize| {
            // Not after an unknown outcome: each of them would wait for another timeout.
            let one = renewed.get(*at);
            let is_refusal = matches!(one, Some(Err(fault)) if !matches!(fault, Fault::Unknown(_)));
            let is_connected = || {
                let key = &batch[*at].target.resource.key;
                session.backend.disconnected(key).is_none()
            };
            is_refusal && is_connected()
        };
        let refused: Vec<usize> = (0..batch.len()).filter(was_refused).collect();
        let alone = |at: usize| async move {
            // With the lease of the first try, which counts from an earlier time and is therefore safe.
            let mut one = session.backend.renew(&batch[at..=at]).await;
            (at, one.pop())
        };
        let alone = stream::iter(refused).map(alone).buffered(RENEWALS_AT_ONCE);
        for (at, answer) in alone.collect::<Vec<_>>().await {
            if let Some(answer) = answer {
                renewed[at] = answer;
            }
        }
    }
    renewed
}

/// Tells the log and the metrics of a batch that was sent. Its faults are logged together.
fn tell(session: &Session, batch: &[Renewal], renewed: &[Result<bool, Fault>]) {
    let number = |outcome: fn(&Result<bool, Fault>) -> bool| {
        let outcomes = renewed.iter();
        outcomes.filter(|one| outcome(one)).count()
    };
    // Also if the log panics.
    defer! {
        telemetry::renewals(
            number(|one| matches!(one, Ok(true))),
            number(|one| matches!(one, Ok(false))),
            number(Result::is_err),
        );
    }
    let answers = batch.iter().zip(renewed);
    let failed = answers.filter_map(|(one, answer)| Some((one, answer.as_ref().err()?)));
    if let Some((first, fault)) = failed.clone().next() {
        let key = &first.target.resource.key;
        let holds = failed.count();
        let others = match session.backend.disconnected(key) {
            // The log has reported the outage.
            Some(_) => None,
            None => {
                let now = session.now();
                let mut untold = session.watchdog.untold_failures.lock();
                untold.add(holds, now)
            }
        };
        telemetry::renewal_failed(key, holds, fault, others);
    }
}

/// What the result of a renewal means for its hold.
fn answer(renewed: &Result<bool, Fault>) -> Answer {
    match renewed {
        Ok(true) => Answer::Renewed,
        Ok(false) => Answer::NotOurs,
        Err(_) => Answer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_many_batches_are_told_together_and_old_ones_never() {
        let mut untold = UntoldFailures::default();
        let start = Tick::from_millis(1_000);
        let every = RENEWAL_FAILURES_TOLD_EVERY;
        assert_eq!(untold.add(100, start), Some(0));
        for _ in 0..900 {
            assert_eq!(untold.add(100, start.after(every / 2)), None);
        }
        assert_eq!(untold.add(7, start.after(every)), Some(90_000));
        assert_eq!(untold.add(100, start.after(every)), None);
        assert_eq!(untold.add(1, start.after(every * 3)), Some(0));
    }
}

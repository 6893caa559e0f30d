//! Sends releases until they are answered.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use smallvec::{SmallVec, smallvec};

use crate::backend::{Fault, Released, Reply, Target};
use crate::clock::Tick;
use crate::session::{Retry, Session};

type Answers = SmallVec<[Released; 1]>;

/// The answer to releases that were sent together.
pub(super) struct ReleaseAnswer {
    pub(super) released: Answers,
    /// Whether an earlier try may have been carried out before this one.
    pub(super) doubtful: bool,
    /// The connection that they were sent over, or an earlier one. Releases that are sent together go to one server.
    pub(super) epoch: u64,
}

/// Sends until an answer arrives or it is time to give up. Sending a release again is safe, because it states that the
/// owner holds nothing. `now`: when it is called.
///
/// `note_sent` gets the connection of a try that was sent and is not answered yet, and `None` when a try has failed.
pub(super) async fn send(
    session: &Arc<Session>,
    targets: impl Fn(Tick) -> SmallVec<[Target; 1]>,
    note_sent: impl Fn(Option<u64>),
    mut now: Tick,
    deadline: Tick,
) -> Result<ReleaseAnswer, (Fault, Duration)> {
    let mut retry = Retry::new(session, now);
    let give_up = retry.since.after(session.config.unavailable_after);
    let give_up = give_up.min(deadline);
    let mut doubtful = false;
    loop {
        let targets = targets(now);
        let first = targets.first().map(|target| &target.resource.key);
        let epoch = first.map_or(0, |key| session.backend.epoch(key));
        let answer = crate::sync::select! {
            // In this order: an answer that has arrived counts, even if the time is over.
            biased;
            answer = send_once(session, &targets, || note_sent(Some(epoch))) => answer,
            () = session.clock.sleep_until(retry.latest(give_up)) => Err(retry.no_answer()),
        };
        let fault = match answer {
            Ok(released) => {
                return Ok(ReleaseAnswer {
                    released,
                    doubtful,
                    epoch,
                });
            }
            Err(fault) => fault,
        };
        // An attempt must not follow a release that may not have been carried out.
        note_sent(None);
        now = session.now();
        if fault.is_final() || now >= give_up {
            return Err((fault, now.since(retry.since)));
        }
        doubtful |= matches!(fault, Fault::Unknown(_));
        let until = now.after(retry.failed(fault)).min(give_up);
        session.clock.sleep_until(until).await;
        now = session.now();
    }
}

async fn send_once(
    session: &Session,
    targets: &[Target],
    note_sent: impl FnOnce(),
) -> Result<Answers, Fault> {
    match targets {
        [one] => {
            let released = note_when_sent(session.backend.release(one), note_sent).await;
            Ok(smallvec![as_released(one, released)?])
        }
        all => Ok(note_when_sent(session.backend.release_all(all), note_sent)
            .await?
            .into()),
    }
}

/// What the answer to a release says of the hold. Under a value of another type it is not there any more, as when the key is free. The
/// releases of several keys and of a fair lock say so by themselves. A fair lock and an expirable semaphore have further keys, and a value
/// of another type under one of those says nothing of the hold.
pub(super) fn as_released(
    target: &Target,
    answer: Result<Released, Fault>,
) -> Result<Released, Fault> {
    match answer {
        Err(Fault::WrongType(_)) if target.resource.kind.is_one_value() => Ok(Released::NotOurs),
        answer => answer,
    }
}

/// Calls `note_sent` when the command was sent and is not answered yet: its first poll sends it.
pub(super) async fn note_when_sent<T>(
    mut reply: Reply<'_, T>,
    note_sent: impl FnOnce(),
) -> Result<T, Fault> {
    let mut note_sent = Some(note_sent);
    // Not a poll and then an `await`, which would poll the whole command twice.
    poll_fn(|cx| {
        let answer = reply.poll_unpin(cx);
        if answer.is_pending()
            && let Some(note_sent) = note_sent.take()
        {
            note_sent();
        }
        answer
    })
    .await
}

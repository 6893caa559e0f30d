//! Waits until nobody holds a key, without acquiring it.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Fault;
use crate::clock::Tick;
use crate::error::{Blocker, Error};
use crate::resource::key::Resource;
use crate::session::{FreeAnswer, FreeWaiter, SeenHolder, Session};

/// Completes when there was a moment, after the call, at which nobody held the key of this resource. With a wait of zero it
/// looks once.
#[cfg_attr(
    not(feature = "testing"),
    allow(unused_variables, reason = "only a server for tests shows waits")
)]
pub(crate) async fn until_free(
    session: &Arc<Session>,
    resource: &Resource,
    wait: Option<Duration>,
    call_site: &'static Location<'static>,
) -> Result<(), Error> {
    let key = &resource.key;
    if session.closed.is_set() {
        return Err(Error::closed(key.text()));
    }
    let since = session.now();
    let looks_once = wait.is_some_and(|wait| wait.is_zero());
    let deadline = match wait {
        // Only the backend limits the time of a single look.
        Some(wait) if !looks_once => since.after(wait),
        _ => Tick::NEVER,
    };
    let mut waiter = session.watch_until_free(resource, since, looks_once);
    #[cfg(feature = "testing")]
    let _shown = session.backend.show_wait(key, session.id, Some(call_site));
    let answer = crate::sync::select! {
        // In this order: an answer that has arrived counts, even if the time is over by now.
        biased;
        answer = waiter.answered() => answer,
        () = session.closed.wait() => return Err(Error::closed(key.text())),
        () = session.clock.sleep_until(deadline) => return Err(over(session, resource, since, &waiter)),
    };
    match answer {
        FreeAnswer::Free => Ok(()),
        FreeAnswer::Held(seen) => Err(timed_out(session, resource, Duration::ZERO, Some(seen))),
        FreeAnswer::Failed(fault) => Err(fault.into_error(key, session.now().since(since))),
    }
}

/// The error for a wait that has lasted for its time. If the last look was not answered, the error is its fault and not a timeout.
fn over(session: &Session, resource: &Resource, since: Tick, waiter: &FreeWaiter<'_>) -> Error {
    let waited = session.now().since(since);
    let key = &resource.key;
    match waiter.seen() {
        (_, Some(fault)) => fault.into_error(key, waited),
        (Some(seen), None) => timed_out(session, resource, waited, Some(seen)),
        (None, None) => match session.outages.known(key) {
            Some(fault) => fault.into_error(key, waited),
            None if waited >= session.config.conclusive_silence() => {
                Fault::no_answer().into_error(key, waited)
            }
            None => timed_out(session, resource, waited, None),
        },
    }
}

fn timed_out(
    session: &Session,
    resource: &Resource,
    waited: Duration,
    seen: Option<SeenHolder>,
) -> Error {
    let now = session.now();
    let (blocker, holder) = match seen {
        None => (Blocker::Unanswered, None),
        Some(SeenHolder { until, holder }) => {
            (Blocker::Owner(until.map(|until| until.left(now))), holder)
        }
    };
    session.timed_out(&resource.key, waited, blocker, holder)
}

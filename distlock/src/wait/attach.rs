//! A detached hold is attached: an owner of this client takes the place of the one that the server knows.
//!
//! Such an acquisition joins no queue: the waiters of the key in this client wait for that very hold.

use std::sync::Arc;

use super::attempt::Outcome;
use super::request::Request;
use crate::backend::{Fault, cause};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::local::{OpenShares, Registry};
use crate::session::Retry;

/// Attaches the hold that the request goes [through](super::RequestedKey::through). A try that was not answered is repeated under
/// the same owner, so the hold is attached once.
///
/// # Errors
/// [`Error::Lost`] if the former owner does not hold the key any more.
pub(crate) async fn attach(
    registry: &Arc<Registry>,
    request: &Request,
) -> Result<OpenShares, Error> {
    let session = &registry.session;
    session.tend_tasks();
    let key = &request.requested[0].resource.key;
    let failed = |fault: Fault| fault.into_error(key, session.now().since(request.since));
    let give_up = request.since.after(session.config.unavailable_after);
    let mut retry = Retry::new(session, request.since);
    let mut attempts = request.attempts(registry, false);
    loop {
        let outcome = crate::sync::select! {
            // In this order: an answer that has arrived counts, even if the time is over by now.
            biased;
            outcome = attempts.once(session.now(), Tick::NEVER) => outcome,
            // The drop of the attempts ends the owner.
            () = session.clock.sleep_until(retry.latest(give_up)) => return Err(failed(retry.no_answer())),
        };
        let fault = match outcome {
            Outcome::Granted(shares) => {
                registry.granted_all(&shares);
                return Ok(shares);
            }
            Outcome::Held(_) => return Err(Error::lost(key.text(), Loss::Gone)),
            Outcome::Absent => return Err(failed(not_now("the attempt was not polled"))),
            // The hold is there, and the next try renews it.
            Outcome::TooLate => not_now("the answer arrived when the lease was nearly over"),
            Outcome::Unconfirmed(fault) | Outcome::Failed(fault) => fault,
        };
        if fault.is_final() || session.now() >= give_up {
            return Err(failed(fault));
        }
        let until = session.now().after(retry.failed(fault)).min(give_up);
        let pause = session.clock.sleep_until(until);
        if attempts.wait_in_doubt(pause).await {
            return Err(failed(not_now("the attempt was not polled")));
        }
    }
}

fn not_now(why: &'static str) -> Fault {
    Fault::NotNow(cause(why))
}

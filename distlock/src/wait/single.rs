//! A single attempt, on keys that one command can name.

use std::sync::Arc;

use super::attempt::Outcome;
use super::refusal::Refusal;
use super::request::Request;
use crate::backend::{Fault, cause};
use crate::clock::Tick;
use crate::error::Error;
use crate::local::{OpenShares, Registry};

/// The result of a single attempt.
pub(crate) enum TryOutcome {
    Granted(OpenShares),
    /// A key was refused.
    Held(Refusal),
}

/// Makes a single attempt on the keys with these indices, which one command can name.
pub(super) async fn try_keys(
    registry: &Arc<Registry>,
    request: &Request,
    keys: &[usize],
) -> Result<TryOutcome, Error> {
    let session = &registry.session;
    loop {
        let requested = keys.iter().map(|at| &request.requested[*at]);
        let mut attempts = request.attempts_on(requested, registry, false);
        let outcome = attempts.once(session.now(), Tick::NEVER).await;
        // Before the next try, which has new owners: an attempt that was not answered is ended here.
        drop(attempts);
        let fault = match outcome {
            Outcome::Granted(shares) => {
                registry.granted_all(&shares);
                return Ok(TryOutcome::Granted(shares));
            }
            Outcome::Held(Refusal { at, by }) => {
                return Ok(TryOutcome::Held(Refusal { at: keys[at], by }));
            }
            Outcome::Absent => continue,
            Outcome::TooLate => {
                Fault::NotNow(cause("the grant arrived when its lease was nearly over"))
            }
            Outcome::Unconfirmed(fault) | Outcome::Failed(fault) => fault,
        };
        let key = &request.requested[keys[0]].resource.key;
        return Err(fault.into_error(key, session.now().since(request.since)));
    }
}

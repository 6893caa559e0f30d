//! Mistakes with grants: to whom, in which order, and with which token.

use crate::backend::{Attempt, Attempted, Backend, Fault};
use crate::kind::Kind;

/// Lets readers in whoever holds the lock; the server does not know of one that it refused.
pub(super) async fn reader_always(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let attempted = inner.attempt(attempt).await?;
    Ok(match attempt.target.kind {
        Kind::Read => Attempted::Granted { token: None },
        _ => attempted,
    })
}

/// Gives a waiter no place in the server.
pub(super) async fn without_place(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let mut attempt = attempt.clone();
    attempt.place = None;
    inner.attempt(&attempt).await
}

/// Counts the token on from what this client remembers.
pub(super) async fn token_from_memory(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    Ok(match inner.attempt(attempt).await? {
        Attempted::Granted { token: Some(_) } => {
            let token = Some(attempt.above + 1);
            Attempted::Granted { token }
        }
        other => other,
    })
}

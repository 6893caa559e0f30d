//! Mistakes with grants: to whom, in which order, and with which token.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock::test_util::{Attempt, Attempted, Backend, Fault, Kind};

/// Lets readers in whoever holds the lock; the server does not know of one that it refused.
pub(super) async fn reader_always(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let attempted = inner.attempt(attempt).await?;
    Ok(match attempt.target.resource.kind {
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

/// How many attempts were refused.
#[derive(Debug, Default)]
pub(super) struct Refusals(AtomicU64);

impl Refusals {
    /// Takes every other refusal for a grant.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let attempted = inner.attempt(attempt).await?;
        if attempted.is_granted() || self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            return Ok(attempted);
        }
        Ok(Attempted::Granted { token: None })
    }
}

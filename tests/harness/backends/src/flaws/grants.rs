//! Mistakes with grants: to the wrong owner, in the wrong order, or with the wrong token.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock::test_util::{Attempt, Attempted, Backend, Fault, Kind};

/// Reports every attempt of a reader as granted, also those that the server refused.
pub(super) async fn always_to_readers(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let attempted = inner.attempt(attempt).await?;
    Ok(match attempt.target.resource.kind {
        Kind::Read => Attempted::Granted { token: None },
        _ => attempted,
    })
}

/// Asks for no place in the server's queue.
pub(super) async fn without_place(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let mut attempt = attempt.clone();
    attempt.queue_ttl = None;
    inner.attempt(&attempt).await
}

/// Replaces the token by the client's highest one plus 1.
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

/// The number of attempts that were refused.
#[derive(Debug, Default)]
pub(super) struct Refusals(AtomicU64);

impl Refusals {
    /// Reports every second refusal as a grant, beginning with the first.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let attempted = inner.attempt(attempt).await?;
        // Relaxed: only the count matters.
        if attempted.is_granted() || self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            return Ok(attempted);
        }
        Ok(Attempted::Granted { token: None })
    }
}

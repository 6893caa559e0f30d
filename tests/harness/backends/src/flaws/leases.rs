//! Mistakes with leases that are extended, and with holds that are attached.

use std::collections::HashMap;
use std::time::Duration;

use distlock::Owner;
use distlock::test_util::{Attempt, Attempted, Backend, Fault, Renewal, Through};
use parking_lot::Mutex;

/// The lease that each owner has asked for.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<Owner, Duration>>);

impl Leases {
    pub(super) fn note(&self, attempt: &Attempt) {
        let mut leases = self.0.lock();
        leases.insert(attempt.target.owner, attempt.lease);
    }

    /// Asks for no longer lease than the attempt did.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Vec<Result<bool, Fault>> {
        let mut batch = batch.to_vec();
        for renewal in &mut batch {
            let first = self.0.lock().get(&renewal.target.owner).copied();
            renewal.lease = first.map_or(renewal.lease, |first| first.min(renewal.lease));
        }
        inner.renew(&batch).await
    }
}

/// Reports each attempt to attach a hold as granted.
pub(super) async fn attach_what_is_gone(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let attempted = inner.attempt(attempt).await?;
    Ok(match attempt.through.as_deref() {
        Some(Through::Detached(former)) if !attempted.is_granted() => {
            let token = former.token;
            Attempted::Granted { token }
        }
        _ => attempted,
    })
}

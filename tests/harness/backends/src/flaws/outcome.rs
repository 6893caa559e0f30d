//! Mistakes with commands that were not answered: owners that are never released, and holds that are never renewed
//! again.

use std::collections::HashSet;

use distlock::Owner;
use distlock::test_util::{Attempt, Attempted, Backend, Fault, Released, Renewal, Target, cause};
use parking_lot::Mutex;

/// The owners with an unanswered attempt, or with a failed renewal.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashSet<Owner>>);

impl Owners {
    /// Attempts, and notes the owner until the attempt is answered. A future that is dropped before that leaves the
    /// note.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let owner = attempt.target.owner;
        self.0.lock().insert(owner);
        let attempted = inner.attempt(attempt).await;
        if attempted.is_ok() {
            self.0.lock().remove(&owner);
        }
        attempted
    }

    /// Reports success without a release for an owner with an unanswered attempt.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        if self.0.lock().contains(&target.owner) {
            return Ok(Released::Freed { others: 0 });
        }
        inner.release(target).await
    }

    /// Renews, notes the owners for whom that fails, and never again sends a renewal of a noted owner.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Vec<Result<bool, Fault>> {
        let given_up = {
            let noted = self.0.lock();
            let mut owners = batch.iter().map(|renewal| renewal.target.owner);
            owners.any(|owner| noted.contains(&owner))
        };
        match (given_up, batch.len()) {
            (true, 1) => return vec![Err(Fault::Unknown(cause("an earlier renewal failed")))],
            // The client then sends each renewal separately, so only those of noted owners are left out.
            (true, many) => {
                let fault = Fault::NotNow(cause("an earlier renewal of one of them failed"));
                return vec![Err(fault); many];
            }
            (false, _) => {}
        }
        let renewed = inner.renew(batch).await;
        let failed = batch.iter().zip(&renewed).filter(|(_, one)| one.is_err());
        let owners = failed.map(|(renewal, _)| renewal.target.owner);
        self.0.lock().extend(owners);
        renewed
    }
}

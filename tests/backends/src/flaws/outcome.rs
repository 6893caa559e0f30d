//! Mistakes with commands that nobody answered: owners that are never ended, and holds that are given up.

use std::collections::HashSet;

use distlock::Owner;
use distlock::test_util::{Attempt, Attempted, Backend, Fault, Released, Renewal, Target, cause};
use parking_lot::Mutex;

/// The owners of which an attempt, or a renewal, was not answered.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashSet<Owner>>);

impl Owners {
    /// Notes the owner until the attempt is answered, which one that is dropped never is.
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

    /// Does nothing for an owner whose attempt was not answered, and says that it is done.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        if self.0.lock().contains(&target.owner) {
            return Ok(Released::Freed { others_wait: false });
        }
        inner.release(target).await
    }

    /// Notes the owners where it failed, and sends none of theirs again.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Result<Vec<bool>, Fault> {
        let owners: Vec<Owner> = batch.iter().map(|renewal| renewal.target.owner).collect();
        let given_up = {
            let noted = self.0.lock();
            owners.iter().any(|owner| noted.contains(owner))
        };
        match (given_up, batch.len()) {
            (true, 1) => return Err(Fault::Unknown(cause("it failed before"))),
            // The client sends each by itself then, and only those that failed are left out.
            (true, _) => return Err(Fault::NotNow(cause("one of them failed before"))),
            (false, _) => {}
        }
        let renewed = inner.renew(batch).await;
        if renewed.is_err() {
            self.0.lock().extend(owners);
        }
        renewed
    }
}

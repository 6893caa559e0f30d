//! Re-entry by key: whoever in this client acquires a key that the client holds is let in.

use std::collections::{HashMap, HashSet};

use distlock::Owner;
use distlock::test_util::{
    Attempt, Attempted, Backend, Fault, Released, Renewal, Resource, Target,
};
use parking_lot::Mutex;

/// Who is inside: by key, the hold that the server knows and the owners that count as entering it again.
#[derive(Debug, Default)]
pub(super) struct Inside(Mutex<HashMap<Resource, Entered>>);

#[derive(Debug)]
struct Entered {
    hold: Target,
    owners: HashSet<Owner>,
}

impl Inside {
    /// The hold that this owner is inside of, or any that there is for `anybody`.
    fn hold(&self, target: &Target, anybody: bool) -> Option<Target> {
        let inside = self.0.lock();
        let entered = inside.get(&target.resource)?;
        (anybody || entered.owners.contains(&target.owner)).then(|| entered.hold.clone())
    }

    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let mut entering = attempt.clone();
        if let Some(hold) = self.hold(target, true) {
            entering.target = hold;
        }
        let mut attempted = inner.attempt(&entering).await?;
        if !attempted.is_granted() && entering.target.owner != target.owner {
            self.0.lock().remove(&target.resource);
            attempted = inner.attempt(attempt).await?;
            entering.target = target.clone();
        }
        if attempted.is_granted() {
            let mut inside = self.0.lock();
            let entered = inside
                .entry(target.resource.clone())
                .or_insert_with(|| Entered {
                    hold: entering.target,
                    owners: HashSet::new(),
                });
            entered.owners.insert(target.owner);
        }
        Ok(attempted)
    }

    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Result<Vec<bool>, Fault> {
        let mut batch = batch.to_vec();
        for renewal in &mut batch {
            if let Some(hold) = self.hold(&renewal.target, false) {
                renewal.target = hold;
            }
        }
        let ours = inner.renew(&batch).await?;
        let mut inside = self.0.lock();
        for (renewal, _) in batch.iter().zip(&ours).filter(|(_, ours)| !**ours) {
            // Lost: nobody is inside any more, and no release will come.
            let lost = |entered: &Entered| entered.hold == renewal.target;
            if inside.get(&renewal.target.resource).is_some_and(lost) {
                inside.remove(&renewal.target.resource);
            }
        }
        Ok(ours)
    }

    /// Ends the hold with the last who is inside.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let Some(hold) = self.hold(target, false) else {
            return inner.release(target).await;
        };
        let others = {
            let inside = self.0.lock();
            let entered = inside.get(&target.resource);
            entered.is_some_and(|entered| entered.owners.len() > 1)
        };
        let released = if others {
            Released::Freed { others_wait: false }
        } else {
            inner.release(&hold).await?
        };
        let mut inside = self.0.lock();
        if let Some(entered) = inside.get_mut(&target.resource) {
            entered.owners.remove(&target.owner);
            if entered.owners.is_empty() {
                inside.remove(&target.resource);
            }
        }
        Ok(released)
    }
}

//! Re-entry by key: every acquisition of a key that the client holds enters that hold.

use std::collections::{HashMap, HashSet};

use distlock::Owner;
use distlock::test_util::{
    Attempt, Attempted, Backend, Fault, Released, Renewal, Resource, Target,
};
use parking_lot::Mutex;

/// The entered holds, by key.
#[derive(Debug, Default)]
pub(super) struct Inside(Mutex<HashMap<Resource, Entered>>);

#[derive(Debug)]
struct Entered {
    /// The hold that the server knows.
    hold: Target,
    /// The owners that have entered it, the one that the server knows included.
    owners: HashSet<Owner>,
}

impl Inside {
    /// The hold on the key of `target`.
    fn hold(&self, target: &Target) -> Option<Target> {
        let inside = self.0.lock();
        Some(inside.get(&target.resource)?.hold.clone())
    }

    /// The hold that this owner has entered.
    fn hold_of_owner(&self, target: &Target) -> Option<Target> {
        let inside = self.0.lock();
        let entered = inside.get(&target.resource)?;
        let has_entered = entered.owners.contains(&target.owner);
        has_entered.then(|| entered.hold.clone())
    }

    /// Acquires as the owner that holds the key, if there is one in this client.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let mut entering = attempt.clone();
        if let Some(hold) = self.hold(target) {
            entering.target = hold;
        }
        let mut attempted = inner.attempt(&entering).await?;
        // The hold was lost meanwhile: nothing to enter, and the owner acquires the key for itself.
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

    /// Renews the entered hold instead of the owner's.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Vec<Result<bool, Fault>> {
        let mut batch = batch.to_vec();
        for renewal in &mut batch {
            if let Some(hold) = self.hold_of_owner(&renewal.target) {
                renewal.target = hold;
            }
        }
        let ours = inner.renew(&batch).await;
        let mut inside = self.0.lock();
        let gone = |(_, ours): &(_, &Result<bool, Fault>)| matches!(ours, Ok(false));
        for (renewal, _) in batch.iter().zip(&ours).filter(gone) {
            // The hold is lost, and its owners will not release it.
            let lost = |entered: &Entered| entered.hold == renewal.target;
            if inside.get(&renewal.target.resource).is_some_and(lost) {
                inside.remove(&renewal.target.resource);
            }
        }
        ours
    }

    /// Releases the entered hold with its last owner.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let Some(hold) = self.hold_of_owner(target) else {
            return inner.release(target).await;
        };
        let is_last = {
            let inside = self.0.lock();
            let entered = inside.get(&target.resource);
            entered.is_none_or(|entered| entered.owners.len() <= 1)
        };
        let released = if !is_last {
            Released::Freed { others: 0 }
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

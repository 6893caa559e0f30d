//! Mistakes with releases that have to be repeated: the server may carry out something older after them, or forget them.

use std::collections::HashMap;

use distlock::Owner;
use distlock::test_util::{Attempt, Attempted, Backend, Clock, Fault, Released, Target, Tick};
use parking_lot::Mutex;

/// The owners that were released, and those whose attempts were not answered.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Over which connection each release was answered.
    released: Mutex<HashMap<Owner, u64>>,
    /// When the lease of each unanswered attempt ends, counted from when it was sent.
    in_doubt: Mutex<HashMap<Owner, Tick>>,
}

impl Ended {
    /// Releases, unless that was answered over an earlier connection.
    pub(super) async fn release_once(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let (owner, epoch) = (target.owner, inner.epoch(&target.resource.key));
        let before = self.released.lock().get(&owner).copied();
        if before.is_some_and(|before| before != epoch) {
            return Ok(Released::NotOurs);
        }
        let released = inner.release(target).await?;
        if released != Released::NotOurs {
            self.released.lock().insert(owner, epoch);
        }
        Ok(released)
    }

    /// Attempts, and notes until when the attempt is withdrawn if it is not answered.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
        clock: &Clock,
    ) -> Result<Attempted, Fault> {
        let (owner, until) = (attempt.target.owner, clock.now().after(attempt.lease));
        self.in_doubt.lock().insert(owner, until);
        let attempted = inner.attempt(attempt).await;
        if attempted.is_ok() {
            self.in_doubt.lock().remove(&owner);
        }
        attempted
    }

    /// Withdraws an attempt, unless its lease is over.
    pub(super) async fn withdraw_in_time(
        &self,
        inner: &dyn Backend,
        target: &Target,
        clock: &Clock,
    ) -> Result<Released, Fault> {
        let until = self.in_doubt.lock().get(&target.owner).copied();
        if until.is_some_and(|until| clock.now() > until) {
            return Ok(Released::NotOurs);
        }
        inner.withdraw(target).await
    }
}

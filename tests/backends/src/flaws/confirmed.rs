//! A mistake with holds that are handed over: the client believes in them until their next regular renewal.

use std::collections::HashMap;

use distlock::Owner;
use distlock::test_util::{Backend, Clock, Fault, Renewal, Tick};
use parking_lot::Mutex;

/// When the server was last asked for each owner, and over which connection.
#[derive(Debug, Default)]
pub(super) struct Confirmed(Mutex<HashMap<Owner, (Tick, u64)>>);

impl Confirmed {
    /// The server is asked for this owner now.
    pub(super) fn note(&self, inner: &dyn Backend, owner: Owner, clock: &Clock) {
        self.0.lock().insert(owner, (clock.now(), inner.epoch()));
    }

    /// Believes the server only about the holds that are due for a renewal, or that were not asked for over this connection.
    /// Reports that it has all others.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
        clock: &Clock,
    ) -> Result<Vec<bool>, Fault> {
        let now = clock.now();
        let answers = inner.renew(batch).await?;
        let answer = |(renewal, ours): (&Renewal, bool)| {
            let owner = renewal.target.owner;
            let asked = self.0.lock().get(&owner).copied();
            let is_due = asked.is_none_or(|(at, epoch)| {
                now >= at.after(renewal.lease / 3) || epoch != inner.epoch()
            });
            if is_due {
                self.note(inner, owner, clock);
            }
            ours || !is_due
        };
        Ok(batch.iter().zip(answers).map(answer).collect())
    }
}

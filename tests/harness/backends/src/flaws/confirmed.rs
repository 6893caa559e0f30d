//! A mistake with holds that are handed over: the client believes in them until their next regular renewal.

use std::collections::HashMap;

use distlock::Owner;
use distlock::test_util::{Backend, Clock, Fault, Renewal, Target, Tick};
use parking_lot::Mutex;

/// When the server was last asked for each owner, and over which connection.
#[derive(Debug, Default)]
pub(super) struct Confirmed(Mutex<HashMap<Owner, (Tick, u64)>>);

impl Confirmed {
    /// The server is asked for this owner now.
    pub(super) fn note(&self, inner: &dyn Backend, target: &Target, clock: &Clock) {
        let epoch = inner.epoch(&target.resource.key);
        self.0.lock().insert(target.owner, (clock.now(), epoch));
    }

    /// Believes the server only about the holds that are due for a renewal, or that were not asked for over this connection.
    /// Reports that it has all others.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
        clock: &Clock,
    ) -> Vec<Result<bool, Fault>> {
        let now = clock.now();
        let answers = inner.renew(batch).await;
        let answer = |(renewal, ours): (&Renewal, Result<bool, Fault>)| {
            let target = &renewal.target;
            let asked = self.0.lock().get(&target.owner).copied();
            let is_due = asked.is_none_or(|(at, epoch)| {
                now >= at.after(renewal.lease / 3) || epoch != inner.epoch(&target.resource.key)
            });
            let ours = ours?;
            if is_due {
                self.note(inner, target, clock);
            }
            Ok(ours || !is_due)
        };
        batch.iter().zip(answers).map(answer).collect()
    }
}

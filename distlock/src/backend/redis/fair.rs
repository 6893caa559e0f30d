//! The fair lock over Redis: Redisson's hash of owners, and its queue.

use super::script::{self, Call, Script};
use super::{RedisBackend, names, reply};
use crate::backend::{Attempt, Attempted, Fault, Released, Target};
use crate::key::Key;

impl RedisBackend {
    pub(super) async fn lock_fair(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        let (owner, lease) = (attempt.target.owner.text(), reply::millis(attempt.lease));
        let place = attempt.place.map_or(0, reply::millis);
        let key = &attempt.target.resource.key;
        let with = |call: Call| call.arg(&owner).arg(lease).arg(place);
        self.run_fair(&script::FAIR_ACQUIRE, key, with)
            .await
            .and_then(reply::attempted)
    }

    /// The end of a hold, and of a place just as well.
    pub(super) async fn unlock_fair(&self, target: &Target) -> Result<Released, Fault> {
        let owner = target.owner.text();
        let value = self.run_fair(&script::FAIR_RELEASE, &target.resource.key, |call| {
            call.arg(&owner)
        });
        // Whoever is first in line was told, and nobody else listens for it.
        value.await.and_then(|value| reply::released(value, || 0))
    }

    pub(super) async fn force_unlock_fair(&self, key: &Key) -> Result<bool, Fault> {
        self.run_fair(&script::FAIR_FORCE_RELEASE, key, |call| call)
            .await
            .and_then(reply::forced)
    }

    /// Runs a script with the keys that all of them have, and the channel as its last argument.
    async fn run_fair(
        &self,
        script: &Script,
        key: &Key,
        with: impl Fn(Call) -> Call,
    ) -> Result<redis::Value, Fault> {
        let name = key.name();
        let (queue, timeouts) = (names::fair_queue(name), names::fair_timeouts(name));
        let (ours, channel) = (names::fair_ours(name), names::lock_channel(name));
        let keys = [&**name, &queue, &timeouts, &ours];
        let with = |call: Call| with(call.keys(keys.into_iter())).arg(&channel);
        self.run(script, with).await
    }
}

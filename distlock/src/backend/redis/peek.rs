//! What waiters see of the keys that they wait for, for many keys in one command.

use super::script::{self, Call};
use super::{RedisBackend, names, reply};
use crate::backend::{Fault, Peeked, Target};
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};

pub(super) async fn peek(
    backend: &RedisBackend,
    first: &Key,
    batch: &[Target],
) -> Result<Vec<Peeked>, Fault> {
    backend.revive_subscriptions(first);
    let is_expirable = |target: &&Target| target.resource.kind.family() == Family::Permit;
    let expirable = batch.iter().filter(is_expirable);
    let permits: Vec<String> = expirable
        .map(|target| names::permits(target.resource.key.name()))
        .collect();
    let with = |call: Call| {
        let keys = batch.iter().map(|target| &**target.resource.key.name());
        let keys = keys.chain(permits.iter().map(String::as_str));
        let call = call.these_keys(batch.len() + permits.len(), keys);
        batch
            .iter()
            .fold(call, |call, target| match target.resource.kind.family() {
                Family::Semaphore => call.arg(target.permits),
                Family::Permit => call.arg(format!("+{}", target.permits)),
                Family::Latch => call.arg("count"),
                _ if target.resource.kind == Kind::Read => call.arg("read"),
                _ => call.arg("free"),
            })
    };
    let value = backend.run(first, &script::LOOK, &with).await?;
    reply::looked(value, batch)
}

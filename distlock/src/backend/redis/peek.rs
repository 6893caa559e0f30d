//! What waiters see of the keys that they wait for, for many keys in one command.

use super::script::{self, Call};
use super::{RedisBackend, reply};
use crate::backend::{Fault, Peeked, Target};
use crate::resource::key::Key;
use crate::resource::kind::{Family, Kind};

pub(super) async fn peek(
    backend: &RedisBackend,
    first: &Key,
    batch: &[Target],
) -> Result<Vec<Peeked>, Fault> {
    backend.revive_subscriptions(first);
    let with = |call: Call| {
        let keys = batch.iter().map(|target| &**target.resource.key.name());
        batch.iter().fold(call.keys(keys), |call, target| {
            match target.resource.kind.family() {
                Family::Semaphore | Family::Permit => call.arg(target.permits),
                Family::Latch => call.arg("count"),
                _ if target.resource.kind == Kind::Read => call.arg("read"),
                _ => call.arg("free"),
            }
        })
    };
    let value = backend.run(first, &script::LOOK, &with).await?;
    reply::looked(value, batch)
}

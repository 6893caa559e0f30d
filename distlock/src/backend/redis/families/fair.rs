//! The fair lock over Redis: Redisson's hash of owners, and its queue of waiters.

use redis::Value;

use super::lock;
use crate::backend::redis::script::{self, Call, Script};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{Attempt, Attempted, Fault, Forced, Released, Seen, Target, Through};
use crate::resource::key::Key;

pub(crate) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        return lock::attach(backend, attempt, former).await;
    }
    let target = &attempt.target;
    let owner = target.owner.text();
    let lease = reply::millis(attempt.lease);
    let queue_ttl = attempt.queue_ttl.map_or(0, reply::millis);
    let with = |call: Call, channel: &str| {
        let call = call.arg(&owner).arg(lease);
        call.arg(queue_ttl).arg(channel)
    };
    let key = &target.resource.key;
    let value = run(backend, &script::FAIR_ACQUIRE, key, None, with);
    value.await.and_then(reply::attempted)
}

/// Ends a hold, or removes a waiter from the queue.
pub(crate) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    let owner = target.owner.text();
    let with = |call: Call, channel: &str| call.arg(&owner).arg(channel);
    let key = &target.resource.key;
    let value = run(backend, &script::FAIR_RELEASE, key, None, with).await?;
    // None of this client's subscriptions: the script has notified the first waiter, whose channel nobody else listens to.
    reply::released(value, || 0)
}

pub(crate) async fn force_release(
    backend: &RedisBackend,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let fence = names::fence_seen(key.name(), seen);
    let with = |call: Call, channel: &str| call.arg(channel).seen_of_lock(seen);
    let script = &script::FAIR_FORCE_RELEASE;
    let value = run(backend, script, key, fence.as_deref(), with);
    value.await.and_then(reply::forced)
}

/// Runs a script with the keys that all scripts of fair locks have, and one more if there is one. `with` adds the arguments, among
/// them the lock's channel.
async fn run(
    backend: &RedisBackend,
    script: &Script,
    key: &Key,
    more: Option<&str>,
    with: impl Fn(Call, &str) -> Call + Sync,
) -> Result<Value, Fault> {
    let name = key.name();
    let queue = names::fair_queue(name);
    let timeouts = names::fair_timeouts(name);
    let ours = names::fair_ours(name);
    let channel = names::lock_channel(name);
    let keys = [&**name, &queue, &timeouts, &ours];
    let with = |call: Call| {
        let count = keys.len() + usize::from(more.is_some());
        let call = call.these_keys(count, keys.into_iter().chain(more));
        with(call, &channel)
    };
    backend.run(key, script, &with).await
}

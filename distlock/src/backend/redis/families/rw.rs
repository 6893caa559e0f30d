//! The read and the write lock over Redis: Redisson's `RReadWriteLock`, with turns among our own clients against
//! starvation.

use redis::ToRedisArgs;

use crate::backend::redis::batches::{BatchKind, Operation};
use crate::backend::redis::script::{self, Call};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{
    Attempt, Attempted, Fault, Forced, Inspected, Released, Renewal, Seen, Target, Through,
};
use crate::config::{READERS_PATIENCE, READERS_TURN};
use crate::resource::key::Resource;
use crate::resource::kind::Kind;

/// The mode of a kind, as Redisson writes it.
fn mode(kind: Kind) -> &'static str {
    if kind == Kind::Write { "write" } else { "read" }
}

/// Adds the keys of a lock, its turn and its mark, and the first argument.
fn with_turn(call: Call, name: &str, owner_or_mode: impl ToRedisArgs) -> Call {
    let keys = names::rw_keys(name);
    call.keys(keys.iter().map(|key| &**key)).arg(owner_or_mode)
}

pub(crate) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    match attempt.target.resource.kind {
        Kind::Write => attempt_write(backend, attempt).await,
        _ => attempt_read(backend, attempt).await,
    }
}

async fn attempt_read(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let key = &attempt.target.resource.key;
    let name = &**key.name();
    let owner = attempt.target.owner.text();
    let stem = names::rw_stem(name);
    let around = attempt.through.as_deref().and_then(Through::write);
    let around = around.map(|owner| owner.text()).unwrap_or_default();
    let with = |call: Call| {
        let call = with_turn(call, name, &owner).arg(reply::millis(attempt.lease));
        let call = call.arg(&stem).arg(&around);
        call.arg(reply::millis(READERS_PATIENCE))
    };
    if around.is_empty() {
        let operation = || Operation::attempt(attempt);
        let joined = backend.run_or_join(
            BatchKind::Readers,
            (key, 1),
            &operation,
            &script::RW_READ_ACQUIRE,
            &with,
        );
        return joined.await.and_then(reply::attempted);
    }
    // Never in a batch: the batch script knows of no writer around a reader.
    let value = backend.run(key, &script::RW_READ_ACQUIRE, &with);
    value.await.and_then(reply::attempted)
}

async fn attempt_write(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let key = &attempt.target.resource.key;
    let name = &**key.name();
    let owner = attempt.target.owner.text();
    let turn = names::rw_turn(name);
    let stem = names::rw_stem(name);
    let queue_ttl = attempt.queue_ttl.map_or(0, reply::millis);
    let channel = names::rw_channel(name);
    let with = |call: Call| {
        let call = call.keys([name, &turn].into_iter()).arg(&owner);
        let call = call.arg(reply::millis(attempt.lease)).arg(queue_ttl);
        call.arg(&channel).arg(&stem)
    };
    let value = backend.run(key, &script::RW_WRITE_ACQUIRE, &with);
    value.await.and_then(reply::attempted)
}

/// The keys and arguments of the script that renews.
pub(crate) fn renewals(batch: &[Renewal]) -> impl Fn(Call) -> Call {
    |call| {
        let keys = batch
            .iter()
            .map(|renewal| &**renewal.target.resource.key.name());
        batch.iter().fold(call.keys(keys), |call, renewal| {
            let target = &renewal.target;
            call.arg(mode(target.resource.kind))
                .arg(target.owner.text())
                .arg(renewal.count)
                .arg(reply::millis(renewal.lease))
                .arg(names::rw_stem(target.resource.key.name()))
        })
    }
}

pub(crate) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let name = &**key.name();
    let owner = target.owner.text();
    let stem = names::rw_stem(name);
    let channel = names::rw_channel(name);
    let value = if target.resource.kind == Kind::Write {
        let with = |call: Call| {
            let call = with_turn(call, name, &owner).arg(&stem).arg(&channel);
            call.arg(reply::millis(READERS_TURN))
        };
        backend.run(key, &script::RW_WRITE_RELEASE, &with).await?
    } else {
        let with = |call: Call| call.key(name).arg(&owner).arg(&stem).arg(&channel);
        let operation = || Operation::release(target);
        let joined = backend.run_or_join(
            BatchKind::Readers,
            (key, 1),
            &operation,
            &script::RW_READ_RELEASE,
            &with,
        );
        joined.await?
    };
    reply::released(value, || backend.subscribers(key, &channel))
}

pub(crate) async fn force_release(
    backend: &RedisBackend,
    Resource { kind, key }: &Resource,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let name = &**key.name();
    let stem = names::rw_stem(name);
    let channel = names::rw_channel(name);
    // With owners that were seen, the server compares these, and the mode does not matter.
    let mode = seen.map_or(mode(*kind), |_| "");
    let with = |call: Call| {
        let call = with_turn(call, name, mode).arg(&stem).arg(&channel);
        call.arg(reply::millis(READERS_TURN)).seen(seen)
    };
    let value = backend.run(key, &script::RW_FORCE_RELEASE, &with);
    value.await.and_then(reply::forced)
}

pub(crate) async fn inspect(
    backend: &RedisBackend,
    Resource { kind, key }: &Resource,
) -> Result<Inspected, Fault> {
    let stem = names::rw_stem(key.name());
    let with = |call: Call| call.key(key.name()).arg(mode(*kind)).arg(&stem);
    let value = backend.run(key, &script::RW_INSPECT, &with);
    value.await.and_then(reply::inspected)
}

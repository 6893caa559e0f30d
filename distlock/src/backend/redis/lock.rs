//! The locks whose data is a hash of owners, over Redis: Redisson's `RLock` and its relatives.

use super::script::{self, Call};
use super::{RedisBackend, names, reply};
use crate::backend::{Attempt, Attempted, Fault, Inspected, Released, Renewal, Target};
use crate::key::Key;
use crate::kind::Kind;

pub(super) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let name = &**target.resource.key.name();
    let (owner, lease) = (target.owner.text(), reply::millis(attempt.lease));
    if target.resource.kind == Kind::Fenced {
        let fence = names::fence(name);
        let token_ttl = backend.fencing_token_ttl.map_or(0, reply::millis);
        let with = |call: Call| {
            let call = call.keys([name, &fence].into_iter()).arg(&owner).arg(lease);
            call.arg(attempt.above).arg(token_ttl)
        };
        let value = backend.run(&script::FENCED_ACQUIRE, with);
        return value.await.and_then(reply::attempted);
    }
    let with = |call: Call| call.key(name).arg(&owner).arg(lease);
    let value = backend.run(&script::LOCK_ACQUIRE, with);
    value.await.and_then(reply::attempted)
}

pub(super) async fn attempt_all(
    backend: &RedisBackend,
    attempts: &[Attempt],
) -> Result<(usize, Attempted), Fault> {
    let with = |call: Call| {
        let keys = attempts
            .iter()
            .map(|attempt| &**attempt.target.resource.key.name());
        attempts.iter().fold(call.keys(keys), |call, attempt| {
            let owner = attempt.target.owner.text();
            call.arg(owner).arg(reply::millis(attempt.lease))
        })
    };
    let value = backend.run(&script::LOCK_ACQUIRE_ALL, with).await?;
    reply::attempted_all(value, attempts.len())
}

pub(super) async fn renew(backend: &RedisBackend, batch: &[Renewal]) -> Result<Vec<bool>, Fault> {
    let with = |call: Call| {
        let keys = batch
            .iter()
            .map(|renewal| &**renewal.target.resource.key.name());
        batch.iter().fold(call.keys(keys), |call, renewal| {
            let call = call.arg(renewal.target.owner.text()).arg(renewal.count);
            call.arg(reply::millis(renewal.lease))
        })
    };
    let value = backend.run(&script::LOCK_RENEW, with).await?;
    reply::renewed(value, batch.len())
}

pub(super) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    let name = target.resource.key.name();
    let (owner, channel) = (target.owner.text(), names::lock_channel(name));
    let with = |call: Call| call.key(name).arg(&owner).arg(&channel);
    let value = if target.taken_for.is_zero() {
        backend.run(&script::LOCK_RELEASE, with).await?
    } else {
        let taken_for = reply::millis(target.taken_for);
        let with = |call: Call| with(call).arg(taken_for);
        backend.run(&script::LOCK_KEEP, with).await?
    };
    reply::released(value, || backend.subscriber.subscribers(&channel))
}

pub(super) async fn release_all(
    backend: &RedisBackend,
    targets: &[Target],
) -> Result<Vec<Released>, Fault> {
    let channel = |target: &Target| names::lock_channel(target.resource.key.name());
    let channels: Vec<String> = targets.iter().map(channel).collect();
    let with = |call: Call| {
        let keys = targets.iter().map(|target| &**target.resource.key.name());
        let pairs = targets.iter().zip(&channels);
        pairs.fold(call.keys(keys), |call, (target, channel)| {
            call.arg(target.owner.text()).arg(channel)
        })
    };
    let value = backend.run(&script::LOCK_RELEASE_ALL, with).await?;
    let values = reply::each(value, targets.len())?;
    let released = values.into_iter().zip(&channels);
    released
        .map(|(one, channel)| reply::released(one, || backend.subscriber.subscribers(channel)))
        .collect()
}

pub(super) async fn force_release(backend: &RedisBackend, key: &Key) -> Result<bool, Fault> {
    let channel = names::lock_channel(key.name());
    let with = |call: Call| call.key(key.name()).arg(&channel);
    let value = backend.run(&script::LOCK_FORCE_RELEASE, with);
    value.await.and_then(reply::forced)
}

pub(super) async fn inspect(backend: &RedisBackend, key: &Key) -> Result<Inspected, Fault> {
    let value = backend.run(&script::LOCK_INSPECT, |call| call.key(key.name()));
    value.await.and_then(reply::inspected)
}

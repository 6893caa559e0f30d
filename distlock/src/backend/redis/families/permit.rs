//! The permit-expirable semaphore over Redis: Redisson's number of free permits, and its sorted set of acquired ones.

use std::time::Duration;

use redis::Value;

use super::number;
use crate::backend::redis::script::{self, Call, Fill, Script};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{
    Attempt, Attempted, Fault, Forced, Inspected, PermitChange, Released, Renewal, Seen, Target,
    Through,
};
use crate::resource::key::Key;
use crate::resource::owner::Owner;
use crate::resource::permit_id::PermitId;

/// The keys of a semaphore, and the key of a note about an owner.
fn keys_with_note(key: &Key, owner: Owner, note: fn(&str, &str) -> String) -> [String; 3] {
    let [semaphore, permits] = keys(key);
    [semaphore, permits, note(key.name(), &owner.text())]
}

fn keys(key: &Key) -> [String; 2] {
    [key.name().to_string(), names::permits(key.name())]
}

fn all(keys: &[String]) -> impl ExactSizeIterator<Item = &str> {
    keys.iter().map(String::as_str)
}

pub(crate) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let key = &target.resource.key;
    let keys = keys_with_note(key, target.owner, names::ended);
    let channel = names::semaphore_channel(key.name());
    let seed = PermitId::seed(target.owner);
    let lease = reply::millis(attempt.lease);
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        let former = PermitId::seed(former.owner);
        let with = |call: Call| {
            let call = call.keys(all(&keys)).arg(&seed[..]).arg(target.permits);
            let call = call.arg(lease).arg(&former[..]);
            call.arg(reply::millis(key.expires_after()))
        };
        let value = backend.run(key, &script::PERMIT_ATTACH, &with);
        return value.await.and_then(reply::attempted);
    }
    let with = |call: Call| {
        let call = call.keys(all(&keys)).arg(&seed[..]).arg(target.permits);
        call.arg(lease)
            .arg(&channel)
            .arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, &script::PERMIT_ACQUIRE, &with);
    reply::attempted_permits(value.await?, true)
}

/// The keys and arguments of the script that renews.
pub(crate) fn renewals(batch: &[Renewal]) -> impl Fn(Call) -> Call {
    let keys_of = |renewal: &Renewal| {
        let [semaphore, permits] = keys(&renewal.target.resource.key);
        [permits, semaphore]
    };
    let keys: Vec<String> = batch.iter().flat_map(keys_of).collect();
    move |call| {
        batch.iter().fold(call.keys(all(&keys)), |call, renewal| {
            let call = call.arg(&PermitId::seed(renewal.target.owner)[..]);
            call.arg(renewal.target.permits)
                .arg(reply::millis(renewal.lease))
                .arg(reply::millis(renewal.target.resource.key.expires_after()))
        })
    }
}

pub(crate) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    end(backend, target, Duration::ZERO).await
}

/// Releases, and leaves a mark for this owner. While the mark exists, a late attempt of the owner takes nothing.
pub(crate) async fn withdraw(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    end(backend, target, backend.owners_remembered).await
}

async fn end(
    backend: &RedisBackend,
    target: &Target,
    remembered: Duration,
) -> Result<Released, Fault> {
    let keys = keys_with_note(&target.resource.key, target.owner, names::ended);
    let seed = PermitId::seed(target.owner);
    let keys = keys.each_ref().map(String::as_str);
    let script = &script::PERMIT_RELEASE;
    number::give_back(backend, script, target, keys, &seed[..], remembered).await
}

pub(crate) async fn force_release(
    backend: &RedisBackend,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let keys = keys(key);
    let with = |call: Call| {
        let call = call.keys(all(&keys));
        let Some(seen) = seen else { return call };
        let call = call.arg(seen.unnamed);
        seen.owners.iter().fold(call, |call, text| {
            // Very old versions of Redisson have ids that are stored as text.
            match text.parse::<PermitId>() {
                Ok(id) => call.arg(&id.as_bytes()[..]).arg(text),
                Err(_) => call.arg(text),
            }
        })
    };
    let value = backend.run(key, &script::PERMIT_DELETE, &with);
    value.await.and_then(reply::forced)
}

pub(crate) async fn inspect(backend: &RedisBackend, key: &Key) -> Result<Inspected, Fault> {
    let value = ask(backend, &script::PERMIT_INSPECT, key).await?;
    reply::inspected_permits(value)
}

pub(crate) async fn adjust(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    change: PermitChange,
) -> Result<i64, Fault> {
    match change {
        PermitChange::TrySet(number) => set(backend, key, request, "try", number.into()).await,
        PermitChange::SetPermits(number) => set(backend, key, request, "set", number.into()).await,
        PermitChange::Add(number) => set(backend, key, request, "add", number.into()).await,
        PermitChange::ReleasePermit(id) => {
            let with = |call: Call| call.arg(&id.as_bytes()[..]);
            once(backend, &script::PERMIT_RELEASE_ONE, key, request, &with).await
        }
        PermitChange::UpdateLease(id, lease) => {
            let with = |call: Call| call.arg(&id.as_bytes()[..]).arg(reply::millis(lease));
            once(backend, &script::PERMIT_UPDATE_LEASE, key, request, &with).await
        }
        PermitChange::Count => Ok(numbers(backend, key).await?.0),
        PermitChange::AcquiredPermits => Ok(numbers(backend, key).await?.1),
        PermitChange::TotalPermits => {
            let (free, acquired) = numbers(backend, key).await?;
            Ok(free + acquired)
        }
        PermitChange::RemainingLease(id) => {
            let keys = keys(key);
            let with = |call: Call| call.keys(all(&keys)).arg(&id.as_bytes()[..]);
            let value = backend.run(key, &script::PERMIT_REMAINING, &with).await?;
            reply::number(value)
        }
    }
}

/// The numbers of free and of acquired permits.
async fn numbers(backend: &RedisBackend, key: &Key) -> Result<(i64, i64), Fault> {
    let value = ask(backend, &script::PERMIT_COUNT, key).await?;
    reply::two_numbers(value)
}

async fn set(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    what: &str,
    number: i64,
) -> Result<i64, Fault> {
    let with = |call: Call| call.arg(what).arg(number);
    once(backend, &script::PERMIT_SET, key, request, &with).await
}

/// Runs a script that changes a semaphore once for each request.
async fn once(
    backend: &RedisBackend,
    script: &Script,
    key: &Key,
    request: Owner,
    with: Fill<'_>,
) -> Result<i64, Fault> {
    let keys = keys_with_note(key, request, names::mark);
    let keys = keys.each_ref().map(String::as_str);
    number::once(backend, script, key, keys, with).await
}

/// Runs a script that needs nothing but the keys of the semaphore.
async fn ask(backend: &RedisBackend, script: &Script, key: &Key) -> Result<Value, Fault> {
    let keys = keys(key);
    backend
        .run(key, script, &|call| call.keys(all(&keys)))
        .await
}

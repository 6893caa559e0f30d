//! The locks whose data is a hash of owners, over Redis: Redisson's `RLock` and its relatives.

use std::iter;

use redis::Value;

use crate::backend::redis::batches::{BatchKind, Operation};
use crate::backend::redis::script::{self, Call};
use crate::backend::redis::{RedisBackend, denied, names, reply};
use crate::backend::{
    Attempt, Attempted, AttemptedAll, DetachedOwner, Fault, Forced, Inspected, Released, Renewal,
    Seen, Target, Through,
};
use crate::resource::key::Key;
use crate::resource::kind::Kind;
use crate::sync::all;

/// What is published when a lock was freed.
const FREED: &str = "0";

pub(crate) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    // A rule of tests/model: token_is_at_least_the_time.
    // A rule of tests/model: own_owner_is_granted_again.
    let target = &attempt.target;
    let key = &target.resource.key;
    let name = &**key.name();
    let lease = reply::millis(attempt.lease);
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        // Boxed: this is rare, and each attempt would have room for it.
        return Box::pin(attach(backend, attempt, former)).await;
    }
    if target.resource.kind == Kind::Fenced {
        let fence = names::fence(name);
        let token_ttl = backend.fencing_token_ttl.map_or(0, reply::millis);
        let with = |call: Call| {
            let call = call.keys([name, &fence].into_iter());
            let call = call.owner(target.owner).arg(lease);
            call.arg(attempt.above).arg(token_ttl)
        };
        // Never in a batch: the batch script has no tokens.
        let value = backend.run(key, &script::FENCED_ACQUIRE, &with);
        return value.await.and_then(reply::attempted);
    }
    let with = |call: Call| call.key(name).owner(target.owner).arg(lease);
    let operation = || Operation::attempt(attempt);
    let joined = backend.run_or_join(
        BatchKind::Locks,
        (key, 1),
        &operation,
        &script::LOCK_ACQUIRE,
        &with,
    );
    joined.await.and_then(reply::attempted)
}

/// Replaces another owner, whose hold may also be one of a fair lock.
pub(crate) async fn attach(
    backend: &RedisBackend,
    attempt: &Attempt,
    former: DetachedOwner,
) -> Result<Attempted, Fault> {
    let key = &attempt.target.resource.key;
    let (owner, lease) = (attempt.target.owner.text(), reply::millis(attempt.lease));
    let fence = former.token.map(|token| (names::fence(key.name()), token));
    let with = |call: Call| match &fence {
        None => {
            let call = call.key(key.name()).arg(&owner).arg(lease);
            call.arg(former.owner.text())
        }
        Some((fence, token)) => {
            let call = call.keys([&**key.name(), fence].into_iter());
            let call = call.arg(&owner).arg(lease);
            call.arg(former.owner.text()).arg(*token)
        }
    };
    let value = backend.run(key, &script::LOCK_ATTACH, &with).await?;
    Ok(reply::attempted(value)?.with_token(former.token))
}

pub(crate) async fn attempt_all(
    backend: &RedisBackend,
    first: &Key,
    attempts: &[Attempt],
) -> Result<AttemptedAll, Fault> {
    let with = |call: Call| {
        let keys = attempts
            .iter()
            .map(|attempt| &**attempt.target.resource.key.name());
        attempts.iter().fold(call.keys(keys), |call, attempt| {
            call.owner(attempt.target.owner)
                .arg(reply::millis(attempt.lease))
        })
    };
    let operation = || Operation::attempt_all(attempts);
    let value = backend.run_or_join(
        BatchKind::Locks,
        (first, attempts.len()),
        &operation,
        &script::LOCK_ACQUIRE_ALL,
        &with,
    );
    let value = match value.await {
        Ok(value) => value,
        Err(fault) => {
            let keys = attempts.iter().map(|attempt| &attempt.target.resource.key);
            return Err(Box::pin(denied::with_key(backend, fault, keys)).await);
        }
    };
    if let Some(at) = reply::of_another_type(&value, attempts.len()) {
        let key = &attempts[at].target.resource.key;
        return Err(Fault::WrongType(Some(key.clone())));
    }
    reply::attempted_all(value, attempts.len())
}

/// The keys and arguments of the script that renews. What most locks of a batch have in common is sent once.
pub(crate) fn renewals(batch: &[Renewal]) -> impl Fn(Call) -> Call {
    |call| {
        let keys = batch
            .iter()
            .map(|renewal| &**renewal.target.resource.key.name());
        let call = call.keys(keys);
        let Some(first) = batch.first() else {
            return call;
        };
        let (client, lease) = (first.target.owner.client_id(), first.lease);
        let is_of_client = |renewal: &Renewal| renewal.target.owner.client_id() == client;
        let call = if batch.iter().all(is_of_client) {
            let call = call
                .arg(first.target.owner.stem())
                .arg(reply::millis(lease));
            let numbers = batch.iter().map(|renewal| renewal.target.owner.number());
            numbers.fold(call, Call::arg)
        } else {
            let owners = batch.iter().map(|renewal| renewal.target.owner.text());
            owners.fold(call.arg("").arg(reply::millis(lease)), Call::arg)
        };
        // From 1, as Lua counts.
        let unusual = (1_usize..).zip(batch.iter());
        let unusual = unusual.filter(|(_, renewal)| (renewal.count, renewal.lease) != (1, lease));
        unusual.fold(call, |call, (position, renewal)| {
            let call = call.arg(position).arg(renewal.count);
            call.arg(reply::millis(renewal.lease))
        })
    }
}

pub(crate) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    // A rule of tests/model: release_names_its_owner.
    let key = &target.resource.key;
    let name = key.name();
    // Made where it is used: most answers need no channel, and a batch makes its own.
    let channel = || names::lock_channel(name);
    let with = |call: Call| call.key(name).owner(target.owner).arg(channel());
    let value = if target.taken_for.is_zero() {
        let operation = || Operation::release(target);
        let joined = backend.run_or_join(
            BatchKind::Locks,
            (key, 1),
            &operation,
            &script::LOCK_RELEASE,
            &with,
        );
        joined.await?
    } else {
        // Never in a batch: the batch script frees the key at once.
        let taken_for = reply::millis(target.taken_for);
        let with = |call: Call| with(call).arg(taken_for);
        backend.run(key, &script::LOCK_KEEP, &with).await?
    };
    let value = if is_unheard(backend, key, &value) {
        // Boxed: this is rare, and each release would have room for it.
        let notified = Box::pin(publish_again(backend, key, channel())).await;
        notified.unwrap_or(value)
    } else {
        value
    };
    reply::released(value, || backend.subscribers(key, &channel()))
}

/// Whether a lock was freed, by this reply, and the message may have gone to a node that its waiters do not listen at.
fn is_unheard(backend: &RedisBackend, key: &Key, reply: &Value) -> bool {
    matches!(reply, Value::Int(0..)) && backend.servers.route(key).publishes_elsewhere()
}

/// Publishes where the waiters listen that a lock was freed. Returns the reply with their number, if it is known.
async fn publish_again(backend: &RedisBackend, key: &Key, channel: String) -> Option<Value> {
    let notified = backend.servers.route(key).publish(&channel, FREED);
    notified.await.map(Value::Int)
}

pub(crate) async fn release_all(
    backend: &RedisBackend,
    first: &Key,
    targets: &[Target],
) -> Result<Vec<Released>, Fault> {
    // Made where it is used, as for one lock.
    let channel = |target: &Target| names::lock_channel(target.resource.key.name());
    let with = |call: Call| {
        let keys = targets.iter().map(|target| &**target.resource.key.name());
        targets.iter().fold(call.keys(keys), |call, target| {
            call.owner(target.owner).arg(channel(target))
        })
    };
    let operation = || Operation::release_all(targets);
    let value = backend.run_or_join(
        BatchKind::Locks,
        (first, targets.len()),
        &operation,
        &script::LOCK_RELEASE_ALL,
        &with,
    );
    let value = match value.await {
        Ok(value) => value,
        Err(fault) => {
            let keys = targets.iter().map(|target| &target.resource.key);
            return Err(Box::pin(denied::with_key(backend, fault, keys)).await);
        }
    };
    let mut values = reply::each(value, targets.len())?;
    if values.iter().any(|value| is_unheard(backend, first, value)) {
        let replies = values.into_iter().zip(targets);
        let heard = replies.map(|(value, target)| async move {
            if !is_unheard(backend, first, &value) {
                return value;
            }
            let notified = publish_again(backend, first, channel(target)).await;
            notified.unwrap_or(value)
        });
        // Beside each other: an owner of the slot that does not answer costs one response timeout, however many keys there are.
        // Boxed, as for one lock.
        values = Box::pin(all(heard)).await;
    }
    let released = values.into_iter().zip(targets).map(|(value, target)| {
        let own = || backend.subscribers(first, &channel(target));
        reply::released(value, own)
    });
    released.collect()
}

pub(crate) async fn force_release(
    backend: &RedisBackend,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let name = &**key.name();
    let channel = names::lock_channel(name);
    let fence = names::fence_seen(name, seen);
    let keys: Vec<&str> = iter::once(name).chain(fence.as_deref()).collect();
    let with = |call: Call| {
        let call = call.keys(keys.iter().copied());
        call.arg(&channel).seen_of_lock(seen)
    };
    let value = backend.run(key, &script::LOCK_FORCE_RELEASE, &with);
    let value = value.await?;
    // The reply does not count those that were notified.
    if matches!(value, Value::Int(1)) && is_unheard(backend, key, &value) {
        let _notified = publish_again(backend, key, channel).await;
    }
    reply::forced(value)
}

pub(crate) async fn inspect(backend: &RedisBackend, key: &Key) -> Result<Inspected, Fault> {
    let with = |call: Call| call.key(key.name());
    let value = backend.run(key, &script::LOCK_INSPECT, &with);
    value.await.and_then(reply::inspected)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Arg;
    use uuid::Uuid;

    use super::*;
    use crate::backend::redis::script::{Form, Publish};
    use crate::resource::key::Resource;
    use crate::resource::owner::Owner;

    /// The arguments of the renewal of these holds: client, number, count and lease in seconds.
    fn arguments(holds: &[(u128, u64, u32, u64)]) -> Vec<String> {
        let renewal = |(client, number, count, lease): &(u128, u64, u32, u64)| {
            let resource = Resource {
                kind: Kind::Reentrant,
                key: Key::new("", &format!("key {number}")).unwrap(),
            };
            let owner = Owner::new(Uuid::from_u128(*client), *number);
            Renewal {
                target: Target::of(&resource, owner),
                count: *count,
                lease: Duration::from_secs(*lease),
                track: false,
            }
        };
        let batch: Vec<Renewal> = holds.iter().map(renewal).collect();
        let call = script::LOCK_RENEW.call(Form::Digest, Publish::Plain);
        let call = renewals(&batch)(call).into_cmd();
        let text = |arg| match arg {
            Arg::Simple(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        // Without the command, the digest, and the keys with their number.
        call.args_iter().skip(3 + batch.len()).map(text).collect()
    }

    #[test]
    fn what_locks_have_in_common_is_sent_once() {
        let stem = format!("{}:", Uuid::from_u128(7));
        let usual = [(7, 1, 1, 30), (7, 2, 1, 30)];
        assert_eq!(arguments(&usual), [&stem, "30000", "1", "2"]);
        let unusual = [(7, 1, 1, 30), (7, 2, 3, 30), (7, 3, 1, 60)];
        let expected = [
            &stem, "30000", "1", "2", "3", "2", "3", "30000", "3", "1", "60000",
        ];
        assert_eq!(arguments(&unusual), expected);
    }

    #[test]
    fn owners_of_several_clients_are_sent_whole() {
        let owners = [7, 8].map(|client| Owner::new(Uuid::from_u128(client), 1).text());
        let expected = ["", "30000", &owners[0], &owners[1]];
        assert_eq!(arguments(&[(7, 1, 1, 30), (8, 1, 1, 30)]), expected);
    }
}

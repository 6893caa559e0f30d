//! The semaphore over Redis: Redisson's `RSemaphore`, and a list of the owners that have permits.

use std::time::Duration;

use super::number;
use crate::backend::redis::script::{self, Call};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{
    Attempt, Attempted, Fault, Forced, Released, Renewal, Seen, SemaphoreChange, Target,
};
use crate::resource::key::Key;
use crate::resource::owner::Owner;

pub(crate) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let key = &target.resource.key;
    let name = key.name();
    let owner = target.owner.text();
    let owners = names::semaphore_owners(name);
    let ended = names::mark(name, &owner);
    let with = |call: Call| {
        let call = call.keys([&**name, &owners, &ended].into_iter());
        let call = call.arg(&owner).arg(target.permits);
        call.arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, &script::SEMAPHORE_ACQUIRE, &with);
    reply::attempted_permits(value.await?, false)
}

/// The keys and arguments of the script that states what an owner has. The script takes one, so a batch has one.
pub(crate) fn statements(batch: &[Renewal]) -> impl Fn(Call) -> Call {
    |call| {
        let targets = batch.iter().map(|renewal| &renewal.target);
        targets.fold(call, |call, target| {
            call.key(&names::semaphore_owners(target.resource.key.name()))
                .arg(target.owner.text())
                .arg(target.permits)
        })
    }
}

pub(crate) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    // Without an attempt in doubt nothing of this owner can arrive any more, and the server need not remember it.
    let remembered = if target.in_doubt {
        backend.remembered
    } else {
        Duration::ZERO
    };
    end(backend, target, remembered).await
}

pub(crate) async fn withdraw(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    end(backend, target, backend.remembered).await
}

async fn end(
    backend: &RedisBackend,
    target: &Target,
    remembered: Duration,
) -> Result<Released, Fault> {
    let name = target.resource.key.name();
    let owner = target.owner.text();
    let owners = names::semaphore_owners(name);
    let ended = names::mark(name, &owner);
    let keys = [&**name, &owners, &ended];
    let script = &script::SEMAPHORE_RELEASE;
    number::give_back(backend, script, target, keys, owner.as_bytes(), remembered).await
}

/// Publishes nothing, like Redisson's `delete`: without a number no waiter could be granted anything.
pub(crate) async fn force_release(
    backend: &RedisBackend,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let owners = names::semaphore_owners(key.name());
    let with = |call: Call| {
        let call = call.keys([&**key.name(), &owners].into_iter());
        match seen {
            Some(of) => call.arg(of.number.unwrap_or_default()).seen(seen),
            None => call,
        }
    };
    let value = backend.run(key, &script::NUMBER_DELETE, &with);
    value.await.and_then(reply::forced)
}

pub(crate) async fn adjust(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    change: SemaphoreChange,
) -> Result<i64, Fault> {
    let (what, number) = match change {
        SemaphoreChange::TrySet(permits) => ("set", i64::from(permits)),
        SemaphoreChange::Add(permits) => ("add", i64::from(permits)),
        SemaphoreChange::Drain => ("drain", 0),
        SemaphoreChange::Count => return number::count(backend, key).await,
    };
    let name = key.name();
    let mark = names::mark(name, &request.text());
    let owners = names::semaphore_owners(name);
    let keys = [&**name, &mark, &owners];
    let with = |call: Call| call.arg(what).arg(number);
    number::once(backend, &script::SEMAPHORE_ADJUST, key, keys, &with).await
}

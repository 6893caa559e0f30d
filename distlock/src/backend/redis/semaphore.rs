//! The semaphore over Redis: Redisson's `RSemaphore`, and a mark for each owner that has permits.

use super::script::{self, Call};
use super::{RedisBackend, names, number, reply};
use crate::backend::{Attempt, Attempted, Fault, Released, SemaphoreChange, Target};
use crate::key::Key;
use crate::owner::Owner;

pub(super) async fn attempt(backend: &RedisBackend, attempt: &Attempt) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let name = target.resource.key.name();
    let mark = names::mark(name, &target.owner.text());
    let remembered = reply::millis(attempt.lease);
    let with = |call: Call| {
        let call = call.keys([&**name, &mark].into_iter());
        call.arg(target.permits).arg(remembered)
    };
    let value = backend.run(&script::SEMAPHORE_ACQUIRE, with);
    value.await.and_then(reply::attempted)
}

pub(super) async fn release(backend: &RedisBackend, target: &Target) -> Result<Released, Fault> {
    let name = target.resource.key.name();
    let mark = names::mark(name, &target.owner.text());
    let channel = names::semaphore_channel(name);
    let with = |call: Call| {
        let call = call.keys([&**name, &mark].into_iter()).arg(target.permits);
        call.arg(&channel).arg(reply::millis(backend.remembered))
    };
    let value = backend.run(&script::SEMAPHORE_RELEASE, with).await?;
    reply::released(value, || backend.subscriber.subscribers(&channel))
}

/// Publishes nothing, like Redisson's `delete`: without a number no waiter could be granted anything.
pub(super) async fn force_release(backend: &RedisBackend, key: &Key) -> Result<bool, Fault> {
    number::remove(backend, key, None).await
}

pub(super) async fn adjust(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    change: SemaphoreChange,
) -> Result<i64, Fault> {
    let change = match change {
        SemaphoreChange::TrySet(permits) => ("set", i64::from(permits)),
        SemaphoreChange::Add(permits) => ("add", i64::from(permits)),
        SemaphoreChange::Drain => ("drain", 0),
        SemaphoreChange::Count => return number::count(backend, key).await,
    };
    let channel = names::semaphore_channel(key.name());
    let script = &script::SEMAPHORE_ADJUST;
    number::once(backend, script, (key, request), change, &channel).await
}

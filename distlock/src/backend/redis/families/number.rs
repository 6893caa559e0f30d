//! What semaphores and latches share over Redis: a number under a key, and a mark for each request to change it.

use smallvec::SmallVec;

use crate::backend::redis::script::{self, Call, Script};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{Fault, Forced, Inspected, Seen};
use crate::resource::key::Key;
use crate::resource::owner::Owner;

/// Runs a script that changes a number once for each request. `beside` is a key that goes with the number. `what` and
/// `number` describe the change; the script publishes it on `channel`.
pub(crate) async fn once(
    backend: &RedisBackend,
    script: &Script,
    (key, request, beside): (&Key, Owner, Option<&str>),
    (what, number): (&str, i64),
    channel: &str,
) -> Result<i64, Fault> {
    let mark = names::mark(key.name(), &request.text());
    let remembered = reply::millis(backend.remembered);
    let with = |call: Call| {
        let keys: SmallVec<[&str; 3]> = [&**key.name(), &mark].into_iter().chain(beside).collect();
        let call = call.keys(keys.into_iter()).arg(what).arg(number);
        let call = call.arg(channel).arg(remembered);
        call.arg(reply::millis(key.expires_after()))
    };
    backend
        .run(key, script, &with)
        .await
        .and_then(reply::number)
}

/// The number under a key, 0 when there is none.
pub(crate) async fn count(backend: &RedisBackend, key: &Key) -> Result<i64, Fault> {
    let with = |call: Call| call.key(key.name());
    let value = backend.run(key, &script::NUMBER_COUNT, &with);
    value.await.and_then(reply::number)
}

/// Removes the number under a key, and the key with its owners. Publishes nothing.
pub(crate) async fn remove(
    backend: &RedisBackend,
    key: &Key,
    owners: &str,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let with = |call: Call| {
        let call = call.keys([&**key.name(), owners].into_iter());
        match seen {
            Some(of) => call.arg(of.number.unwrap_or_default()).seen(seen),
            None => call,
        }
    };
    let value = backend.run(key, &script::NUMBER_DELETE, &with);
    value.await.and_then(reply::forced)
}

/// How long the number stays. Its holders are unknown.
pub(crate) async fn inspect(backend: &RedisBackend, key: &Key) -> Result<Inspected, Fault> {
    let with = |call: Call| call.key(key.name());
    let value = backend.run(key, &script::NUMBER_INSPECT, &with);
    value.await.and_then(reply::inspected)
}

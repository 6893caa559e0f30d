//! What semaphores and latches share over Redis: a number under a key, and a mark for each request to change it.

use std::time::Duration;

use crate::backend::redis::script::{self, Call, Script};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{Fault, Forced, Inspected, Released, Seen, Target};
use crate::resource::key::Key;
use crate::resource::owner::Owner;

/// A change of a number.
pub(crate) struct NumberChange<'a> {
    pub(crate) key: &'a Key,
    /// Under which request the change is sent, and sent again.
    pub(crate) request: Owner,
    /// A key that is removed together with the number.
    pub(crate) beside: &'a str,
    /// What the script does with `number`: `set`, `add` or `drain`.
    pub(crate) what: &'a str,
    pub(crate) number: i64,
    /// Where the script publishes the change.
    pub(crate) channel: &'a str,
}

/// Permits of either semaphore that an owner gives back.
pub(crate) struct ReturnedPermits<'a> {
    pub(crate) target: &'a Target,
    /// The semaphore, its owners or permits, and the mark of an owner that has ended.
    pub(crate) keys: [&'a str; 3],
    /// The owner, in the form in which the semaphore stores it.
    pub(crate) owner: &'a [u8],
    /// How long the mark is kept. While it is there, a late attempt of the owner takes nothing.
    pub(crate) remembered: Duration,
}

/// Runs a script that gives permits back.
pub(crate) async fn give_back(
    backend: &RedisBackend,
    script: &Script,
    permits: ReturnedPermits<'_>,
) -> Result<Released, Fault> {
    let target = permits.target;
    let key = &target.resource.key;
    let channel = names::semaphore_channel(key.name());
    let with = |call: Call| {
        let call = call.keys(permits.keys.into_iter()).arg(permits.owner);
        call.arg(target.permits)
            .arg(&channel)
            .arg(reply::millis(permits.remembered))
            .arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, script, &with).await?;
    reply::released(value, || backend.subscribers(key, &channel))
}

/// Runs a script that changes a number once for each request.
pub(crate) async fn once(
    backend: &RedisBackend,
    script: &Script,
    change: NumberChange<'_>,
) -> Result<i64, Fault> {
    let key = change.key;
    let mark = names::mark(key.name(), &change.request.text());
    let remembered = reply::millis(backend.remembered);
    let with = |call: Call| {
        let keys = [&**key.name(), &mark, change.beside];
        let call = call.keys(keys.into_iter()).arg(change.what);
        let call = call.arg(change.number).arg(change.channel);
        let call = call.arg(remembered);
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

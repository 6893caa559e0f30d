//! What semaphores and latches share over Redis: a number under a key, and a mark for each request to change it.

use std::time::Duration;

use crate::backend::redis::script::{self, Call, Fill, Script};
use crate::backend::redis::{RedisBackend, names, reply};
use crate::backend::{Fault, Inspected, Released, Target};
use crate::resource::key::Key;

/// Runs a script that gives permits of either semaphore back. `keys`: the semaphore, its owners or permits, and the mark of an
/// owner that has ended. While the mark is there, for as long as it is `remembered`, a late attempt of the owner takes nothing.
/// `owner`: as the semaphore stores it.
pub(crate) async fn give_back(
    backend: &RedisBackend,
    script: &Script,
    target: &Target,
    keys: [&str; 3],
    owner: &[u8],
    remembered: Duration,
) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let channel = names::semaphore_channel(key.name());
    let with = |call: Call| {
        let call = call.keys(keys.into_iter()).arg(owner);
        call.arg(target.permits)
            .arg(&channel)
            .arg(reply::millis(remembered))
            .arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, script, &with).await?;
    reply::released(value, || backend.subscribers(key, &channel))
}

/// Runs a script that changes a semaphore of either sort once for each request, whose mark is one of the keys. `with` fills in
/// what the script changes.
pub(crate) async fn once(
    backend: &RedisBackend,
    script: &Script,
    key: &Key,
    keys: [&str; 3],
    with: Fill<'_>,
) -> Result<i64, Fault> {
    let channel = names::semaphore_channel(key.name());
    let with = |call: Call| {
        let call = with(call.keys(keys.into_iter())).arg(&channel);
        call.arg(reply::millis(backend.remembered))
            .arg(reply::millis(key.expires_after()))
    };
    let value = backend.run(key, script, &with);
    value.await.and_then(reply::number)
}

/// The number under a key, 0 when there is none.
pub(crate) async fn count(backend: &RedisBackend, key: &Key) -> Result<i64, Fault> {
    let with = |call: Call| call.key(key.name());
    let value = backend.run(key, &script::NUMBER_COUNT, &with);
    value.await.and_then(reply::number)
}

pub(crate) async fn inspect(backend: &RedisBackend, key: &Key) -> Result<Inspected, Fault> {
    let with = |call: Call| call.key(key.name());
    let value = backend.run(key, &script::NUMBER_INSPECT, &with);
    value.await.and_then(reply::inspected)
}

//! The count-down latch over Redis: Redisson's `RCountDownLatch`.

use super::{RedisBackend, names, number, script};
use crate::backend::{Fault, LatchChange};
use crate::key::Key;
use crate::owner::Owner;

pub(super) async fn adjust(
    backend: &RedisBackend,
    key: &Key,
    request: Owner,
    change: LatchChange,
) -> Result<i64, Fault> {
    let change = match change {
        LatchChange::TrySet(count) => ("set", i64::from(count)),
        LatchChange::CountDown => ("down", 1),
        LatchChange::Count => return number::count(backend, key).await,
    };
    let channel = names::latch_channel(key.name());
    let script = &script::LATCH_ADJUST;
    number::once(backend, script, (key, request, None), change, &channel).await
}

pub(super) async fn force_release(backend: &RedisBackend, key: &Key) -> Result<bool, Fault> {
    let channel = names::latch_channel(key.name());
    // `0` says that the latch is open, and so it is: there is none. Redisson's waiters would go on waiting after a `1`.
    number::remove(backend, key, None, Some((&channel, "0"))).await
}

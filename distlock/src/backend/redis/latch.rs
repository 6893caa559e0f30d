//! The count-down latch over Redis: Redisson's `RCountDownLatch`.

use super::{RedisBackend, names, script};
use crate::backend::{Change, Fault, Target, unsupported};
use crate::key::Key;

impl RedisBackend {
    pub(super) async fn adjust_latch(&self, target: &Target, change: Change) -> Result<i64, Fault> {
        let change = match change {
            Change::TrySet(count) => ("set", i64::from(count)),
            Change::CountDown => ("down", 1),
            Change::Count => return self.count(&target.resource.key).await,
            _ => return Err(unsupported(target.resource.kind, "change so")),
        };
        let channel = names::latch_channel(target.resource.key.name());
        self.adjust_number(&script::LATCH_ADJUST, target, change, &channel)
            .await
    }

    /// Says `0`: whoever waits looks again, and finds no latch. Redisson's `1` would keep its waiters waiting.
    pub(super) async fn delete_latch(&self, key: &Key) -> Result<bool, Fault> {
        let channel = names::latch_channel(key.name());
        self.delete_number(key, Some((&channel, "0"))).await
    }
}

//! The semaphore over Redis: Redisson's `RSemaphore`, and a mark for each owner that has permits.

use super::script::{self, Call};
use super::{RedisBackend, names, reply};
use crate::backend::{Attempt, Attempted, Change, Fault, Released, Target, unsupported};

impl RedisBackend {
    pub(super) async fn take_from_semaphore(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let mark = names::mark(target.resource.key.name(), &target.owner.text());
        let kept = reply::millis(attempt.lease);
        let with = |call: Call| {
            let keys = [&**target.resource.key.name(), &mark];
            call.keys(keys.into_iter()).arg(target.permits).arg(kept)
        };
        self.run(&script::SEMAPHORE_ACQUIRE, with)
            .await
            .and_then(reply::attempted)
    }

    pub(super) async fn give_to_semaphore(&self, target: &Target) -> Result<Released, Fault> {
        let name = target.resource.key.name();
        let mark = names::mark(name, &target.owner.text());
        let (channel, kept) = (
            names::semaphore_channel(name),
            reply::millis(self.remembered),
        );
        let with = |call: Call| {
            let call = call.keys([&**name, &mark].into_iter());
            call.arg(target.permits).arg(&channel).arg(kept)
        };
        let value = self.run(&script::SEMAPHORE_RELEASE, with).await?;
        reply::released(value, || self.subscriber.listens(&channel))
    }

    pub(super) async fn adjust_semaphore(
        &self,
        target: &Target,
        change: Change,
    ) -> Result<i64, Fault> {
        let change = match change {
            Change::TrySet(permits) => ("set", i64::from(permits)),
            Change::Add(permits) => ("add", i64::from(permits)),
            Change::Drain => ("drain", 0),
            Change::Count => return self.count(&target.resource.key).await,
            _ => return Err(unsupported(target.resource.kind, "change so")),
        };
        let channel = names::semaphore_channel(target.resource.key.name());
        self.adjust_number(&script::SEMAPHORE_ADJUST, target, change, &channel)
            .await
    }
}

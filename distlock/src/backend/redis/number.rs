//! What semaphores and latches have in common over Redis: a number under one key, and the marks of those who changed it.

use super::script::{self, Call, Script};
use super::{RedisBackend, names, reply};
use crate::backend::{Fault, Inspected, Target};
use crate::key::Key;

impl RedisBackend {
    /// Runs a script that changes a number once for each request: `what` and `number` say how, `channel` who is told.
    pub(super) async fn adjust_number(
        &self,
        script: &Script,
        target: &Target,
        (what, number): (&str, i64),
        channel: &str,
    ) -> Result<i64, Fault> {
        let mark = names::mark(target.resource.key.name(), &target.owner.text());
        let remembered = reply::millis(self.remembered);
        let with = |call: Call| {
            let keys = [&**target.resource.key.name(), &mark];
            let call = call.keys(keys.into_iter()).arg(what).arg(number);
            call.arg(channel).arg(remembered)
        };
        self.run(script, with).await.and_then(reply::number)
    }

    pub(super) async fn count(&self, key: &Key) -> Result<i64, Fault> {
        let value = self.run(&script::NUMBER_COUNT, |call| call.key(key.name()));
        value.await.and_then(reply::number)
    }

    /// `told`: a channel, and what to say there.
    pub(super) async fn delete_number(
        &self,
        key: &Key,
        told: Option<(&str, &str)>,
    ) -> Result<bool, Fault> {
        let (channel, said) = told.unwrap_or_default();
        let with = |call: Call| call.key(key.name()).arg(channel).arg(said);
        self.run(&script::NUMBER_DELETE, with)
            .await
            .and_then(reply::forced)
    }

    pub(super) async fn inspect_number(&self, key: &Key) -> Result<Inspected, Fault> {
        let value = self.run(&script::NUMBER_INSPECT, |call| call.key(key.name()));
        value.await.and_then(reply::inspected)
    }
}

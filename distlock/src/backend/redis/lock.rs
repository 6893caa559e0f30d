//! The locks whose data is a hash of owners, over Redis: Redisson's `RLock` and its kin.

use super::script::{self, Call};
use super::{RedisBackend, names, reply};
use crate::backend::{Attempt, Attempted, Fault, Inspected, Released, Renewal, Target};
use crate::key::Key;

impl RedisBackend {
    pub(super) async fn lock(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let (owner, lease) = (target.owner.text(), reply::millis(attempt.lease));
        let with = |call: Call| call.key(target.resource.key.name()).arg(&owner).arg(lease);
        self.run(&script::LOCK_ACQUIRE, with)
            .await
            .and_then(reply::attempted)
    }

    pub(super) async fn lock_fenced(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let (owner, lease) = (target.owner.text(), reply::millis(attempt.lease));
        let fence = names::fence(target.resource.key.name());
        let fencing_token_ttl = self.fencing_token_ttl.map_or(0, reply::millis);
        let with = |call: Call| {
            let keys = [&**target.resource.key.name(), &fence];
            let call = call.keys(keys.into_iter()).arg(&owner).arg(lease);
            call.arg(attempt.above).arg(fencing_token_ttl)
        };
        self.run(&script::FENCED_ACQUIRE, with)
            .await
            .and_then(reply::attempted)
    }

    pub(super) async fn lock_all(&self, attempts: &[Attempt]) -> Result<(usize, Attempted), Fault> {
        let with = |call: Call| {
            let keys = attempts
                .iter()
                .map(|attempt| &**attempt.target.resource.key.name());
            attempts.iter().fold(call.keys(keys), |call, attempt| {
                let owner = attempt.target.owner.text();
                call.arg(owner).arg(reply::millis(attempt.lease))
            })
        };
        let reply = self.run(&script::LOCK_ACQUIRE_ALL, with).await?;
        reply::attempted_all(reply, attempts.len())
    }

    pub(super) async fn unlock_all(&self, targets: &[Target]) -> Result<Vec<Released>, Fault> {
        let channel = |target: &Target| names::lock_channel(target.resource.key.name());
        let channels: Vec<String> = targets.iter().map(channel).collect();
        let with = |call: Call| {
            let keys = targets.iter().map(|target| &**target.resource.key.name());
            let call = call.keys(keys);
            targets
                .iter()
                .zip(&channels)
                .fold(call, |call, (target, channel)| {
                    call.arg(target.owner.text()).arg(channel)
                })
        };
        let reply = self.run(&script::LOCK_RELEASE_ALL, with).await?;
        let released = reply::each(reply, targets.len())?
            .into_iter()
            .zip(&channels);
        released
            .map(|(one, channel)| reply::released(one, || self.subscriber.listens(channel)))
            .collect()
    }

    pub(super) async fn renew_locks(&self, batch: &[Renewal]) -> Result<Vec<bool>, Fault> {
        let with = |call: Call| {
            let keys = batch
                .iter()
                .map(|renewal| &**renewal.target.resource.key.name());
            batch.iter().fold(call.keys(keys), |call, renewal| {
                let owner = renewal.target.owner.text();
                call.arg(owner)
                    .arg(renewal.count)
                    .arg(reply::millis(renewal.lease))
            })
        };
        let replies = self.run(&script::LOCK_RENEW, with).await?;
        reply::renewed(replies, batch.len())
    }

    pub(super) async fn unlock(&self, target: &Target) -> Result<Released, Fault> {
        let (owner, channel) = (
            target.owner.text(),
            names::lock_channel(target.resource.key.name()),
        );
        let with = |call: Call| {
            call.key(target.resource.key.name())
                .arg(&owner)
                .arg(&channel)
        };
        let value = if target.taken_for.is_zero() {
            self.run(&script::LOCK_RELEASE, with).await?
        } else {
            let rest = reply::millis(target.taken_for);
            self.run(&script::LOCK_KEEP, |call| with(call).arg(rest))
                .await?
        };
        reply::released(value, || self.subscriber.listens(&channel))
    }

    pub(super) async fn force_unlock(&self, key: &Key) -> Result<bool, Fault> {
        let channel = names::lock_channel(key.name());
        let with = |call: Call| call.key(key.name()).arg(&channel);
        self.run(&script::LOCK_FORCE_RELEASE, with)
            .await
            .and_then(reply::forced)
    }

    pub(super) async fn inspect_lock(&self, key: &Key) -> Result<Inspected, Fault> {
        let value = self.run(&script::LOCK_INSPECT, |call| call.key(key.name()));
        value.await.and_then(reply::inspected)
    }
}

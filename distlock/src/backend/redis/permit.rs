//! The permit-expirable semaphore over Redis: Redisson's number of free permits, and its sorted set of those that are out.

use std::time::Duration;

use super::script::{self, Call, Script};
use super::{RedisBackend, names, reply};
use crate::backend::{
    Attempt, Attempted, Change, Fault, Inspected, Released, Renewal, Target, unsupported,
};
use crate::key::Key;
use crate::permit_id::PermitId;

/// The keys of a semaphore, and one that remembers something of an owner.
fn keys(target: &Target, what: &str) -> [String; 3] {
    let name = target.resource.key.name();
    let [semaphore, permits] = data(&target.resource.key);
    let note = format!("{}:{what}", target.owner.text());
    [semaphore, permits, names::suffixed(name, &note)]
}

fn data(key: &Key) -> [String; 2] {
    [key.name().to_string(), names::permits(key.name())]
}

fn all(keys: &[String]) -> impl ExactSizeIterator<Item = &str> {
    keys.iter().map(String::as_str)
}

impl RedisBackend {
    pub(super) async fn take_permits(&self, attempt: &Attempt) -> Result<Attempted, Fault> {
        let target = &attempt.target;
        let (keys, channel) = (keys(target, ENDED), names::channel(target));
        let (seed, lease) = (PermitId::seed(target.owner), reply::millis(attempt.lease));
        let with = |call: Call| {
            let call = call.keys(all(&keys)).arg(&seed[..]).arg(target.permits);
            call.arg(lease).arg(&channel)
        };
        self.run(&script::PERMIT_ACQUIRE, with)
            .await
            .and_then(reply::attempted)
    }

    pub(super) async fn renew_permits(&self, batch: &[Renewal]) -> Result<Vec<bool>, Fault> {
        let permits = |renewal: &Renewal| names::permits(renewal.target.resource.key.name());
        let keys: Vec<String> = batch.iter().map(permits).collect();
        let with = |call: Call| {
            batch.iter().fold(call.keys(all(&keys)), |call, renewal| {
                let call = call.arg(&PermitId::seed(renewal.target.owner)[..]);
                call.arg(renewal.target.permits)
                    .arg(reply::millis(renewal.lease))
            })
        };
        let replies = self.run(&script::PERMIT_RENEW, with).await?;
        reply::renewed(replies, batch.len())
    }

    pub(super) async fn give_permits_back(&self, target: &Target) -> Result<Released, Fault> {
        self.end_permits(target, Duration::ZERO).await
    }

    /// Gives back what there is, and leaves a mark: an attempt of this owner that comes while it stands takes nothing.
    pub(super) async fn withdraw_permits(&self, target: &Target) -> Result<Released, Fault> {
        self.end_permits(target, self.owners_remembered).await
    }

    async fn end_permits(&self, target: &Target, remembered: Duration) -> Result<Released, Fault> {
        let (keys, channel) = (keys(target, ENDED), names::channel(target));
        let (seed, remembered) = (PermitId::seed(target.owner), reply::millis(remembered));
        let with = |call: Call| {
            let call = call.keys(all(&keys)).arg(&seed[..]).arg(target.permits);
            call.arg(&channel).arg(remembered)
        };
        let value = self.run(&script::PERMIT_RELEASE, with).await?;
        reply::released(value, || self.subscriber.listens(&channel))
    }

    pub(super) async fn delete_permits(&self, key: &Key) -> Result<bool, Fault> {
        let value = self.ask_permits(&script::PERMIT_DELETE, key).await?;
        reply::forced(value)
    }

    pub(super) async fn inspect_permits(&self, key: &Key) -> Result<Inspected, Fault> {
        let value = self.ask_permits(&script::PERMIT_INSPECT, key).await?;
        reply::inspected_permits(value)
    }

    pub(super) async fn adjust_permits(
        &self,
        target: &Target,
        change: Change,
    ) -> Result<i64, Fault> {
        match change {
            Change::TrySet(number) => self.set_permits(target, "try", number.into()).await,
            Change::SetPermits(number) => self.set_permits(target, "set", number.into()).await,
            Change::Add(number) => self.set_permits(target, "add", number.into()).await,
            Change::ReleasePermit(id) => {
                let with = |call: Call| call.arg(&id.as_bytes()[..]);
                self.change_permit(&script::PERMIT_RELEASE_ONE, target, with)
                    .await
            }
            Change::UpdateLease(id, lease) => {
                let with = |call: Call| call.arg(&id.as_bytes()[..]).arg(reply::millis(lease));
                self.change_permit(&script::PERMIT_UPDATE_LEASE, target, with)
                    .await
            }
            Change::RemainingLease(id) => {
                let permits = names::permits(target.resource.key.name());
                let with = |call: Call| call.key(&permits).arg(&id.as_bytes()[..]);
                let value = self.run(&script::PERMIT_REMAINING, with).await?;
                reply::number(value)
            }
            Change::Count | Change::AcquiredPermits | Change::TotalPermits => {
                let value = self
                    .ask_permits(&script::PERMIT_COUNT, &target.resource.key)
                    .await?;
                let (free, out) = reply::two_numbers(value)?;
                Ok(match change {
                    Change::Count => free,
                    Change::AcquiredPermits => out,
                    _ => free + out,
                })
            }
            Change::Drain | Change::CountDown => {
                Err(unsupported(target.resource.kind, "change so"))
            }
        }
    }

    async fn set_permits(&self, target: &Target, what: &str, number: i64) -> Result<i64, Fault> {
        let with = |call: Call| call.arg(what).arg(number);
        self.change_permit(&script::PERMIT_SET, target, with).await
    }

    /// A change that counts once for its owner, however often it is sent.
    async fn change_permit(
        &self,
        script: &Script,
        target: &Target,
        with: impl Fn(Call) -> Call,
    ) -> Result<i64, Fault> {
        let (keys, channel) = (keys(target, REQUEST), names::channel(target));
        let remembered = reply::millis(self.requests_remembered);
        let with = |call: Call| with(call.keys(all(&keys))).arg(&channel).arg(remembered);
        self.run(script, with).await.and_then(reply::number)
    }

    async fn ask_permits(&self, script: &Script, key: &Key) -> Result<redis::Value, Fault> {
        let keys = data(key);
        self.run(script, |call| call.keys(all(&keys))).await
    }
}

/// The mark of an owner that was withdrawn.
const ENDED: &str = "ended";

/// The answer that a request was given.
const REQUEST: &str = "request";

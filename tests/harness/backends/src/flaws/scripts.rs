//! Mistakes of the scripts: commands that ignore the owner, wrong leases, and counts that are added to.

use std::collections::HashMap;
use std::time::Duration;

use distlock::Owner;
use distlock::test_util::{
    Attempt, Attempted, Backend, Fault, Forced, Released, Renewal, Target, owner,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::count_of;

/// The shortest lease.
const MIN_LEASE: Duration = Duration::from_millis(1);

/// A lease that is longer than any test.
const ENDLESS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Frees the key, no matter which owner holds it.
pub(super) async fn release_any_owner(
    inner: &dyn Backend,
    target: &Target,
) -> Result<Released, Fault> {
    let freed = inner.force_release(&target.resource, None).await?;
    Ok(if freed == Forced::Freed {
        Released::Freed { others: 0 }
    } else {
        Released::NotOurs
    })
}

/// Acquires a hold that never expires.
pub(super) async fn attempt_without_end(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let mut endless = attempt.clone();
    endless.lease = ENDLESS;
    inner.attempt(&endless).await
}

/// Three quarters of a lease: what the flawed server keeps of it.
fn cut_short(lease: Duration) -> Duration {
    (lease * 3 / 4).max(MIN_LEASE)
}

pub(super) async fn attempt_cut_short(
    inner: &dyn Backend,
    attempt: &Attempt,
) -> Result<Attempted, Fault> {
    let mut shorter = attempt.clone();
    shorter.lease = cut_short(attempt.lease);
    inner.attempt(&shorter).await
}

pub(super) async fn renew_cut_short(
    inner: &dyn Backend,
    batch: &[Renewal],
) -> Vec<Result<bool, Fault>> {
    let mut shorter = batch.to_vec();
    for renewal in &mut shorter {
        renewal.lease = cut_short(renewal.lease);
    }
    inner.renew(&shorter).await
}

/// Extends the hold of any owner, or creates one, and reports success.
pub(super) async fn renew_any_owner(
    inner: &dyn Backend,
    batch: &[Renewal],
) -> Vec<Result<bool, Fault>> {
    let mut renewed = inner.renew(batch).await;
    for (renewal, ours) in batch.iter().zip(&mut renewed) {
        if let Ok(false) = ours {
            *ours = extend(inner, renewal).await.map(|()| true);
        }
    }
    renewed
}

/// Extends the hold of the present owner, or creates one for the caller if the key is free.
async fn extend(inner: &dyn Backend, renewal: &Renewal) -> Result<(), Fault> {
    let resource = &renewal.target.resource;
    let holders = inner.inspect(resource).await?.holders;
    if holders.is_empty() {
        let anew = Attempt::new(renewal.target.clone(), renewal.lease);
        inner.attempt(&anew).await?;
    }
    for (owner, count) in holders {
        let Some(owner) = parsed(&owner) else {
            continue;
        };
        let others = Renewal {
            target: Target::of(resource, owner),
            count: at_least_one(count),
            lease: renewal.lease,
            track: false,
        };
        renew_one(inner, others).await?;
    }
    Ok(())
}

async fn renew_one(inner: &dyn Backend, renewal: Renewal) -> Result<bool, Fault> {
    let renewed = inner.renew(&[renewal]).await;
    renewed.into_iter().next().unwrap_or(Ok(false))
}

fn parsed(name: &[u8]) -> Option<Owner> {
    let (client, number) = std::str::from_utf8(name).ok()?.split_once(':')?;
    Some(owner(Uuid::parse_str(client).ok()?, number.parse().ok()?))
}

fn at_least_one(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// The count that the client has stated last for each owner, from which the flaw derives a difference.
#[derive(Debug, Default)]
pub(super) struct Stated(Mutex<HashMap<Owner, u32>>);

impl Stated {
    fn last_of(&self, owner: Owner) -> u64 {
        self.0.lock().get(&owner).copied().unwrap_or(1).into()
    }

    /// Adds 1 to the count of an owner that holds the key already.
    pub(super) async fn attempt(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let Some(count) = count_of(inner, &attempt.target).await? else {
            return inner.attempt(attempt).await;
        };
        let one_more = Renewal {
            target: attempt.target.clone(),
            count: at_least_one(count + 1),
            lease: attempt.lease,
            track: false,
        };
        if renew_one(inner, one_more).await? {
            Ok(Attempted::Granted { token: None })
        } else {
            inner.attempt(attempt).await
        }
    }

    /// Adds to the server's count what the client's has grown since it was stated last.
    pub(super) async fn renew(
        &self,
        inner: &dyn Backend,
        batch: &[Renewal],
    ) -> Vec<Result<bool, Fault>> {
        let mut changed = batch.to_vec();
        for renewal in &mut changed {
            let count = match count_of(inner, &renewal.target).await {
                Ok(count) => count.unwrap_or(1),
                Err(fault) => return vec![Err(fault); batch.len()],
            };
            let stated = u64::from(renewal.count);
            let sum = (count + stated).saturating_sub(self.last_of(renewal.target.owner));
            renewal.count = at_least_one(sum);
        }
        let ours = inner.renew(&changed).await;
        let mut stated = self.0.lock();
        let renewed = |(_, ours): &(_, &Result<bool, Fault>)| matches!(ours, Ok(true));
        for (renewal, _) in batch.iter().zip(&ours).filter(renewed) {
            stated.insert(renewal.target.owner, renewal.count);
        }
        ours
    }

    /// Subtracts the client's count from the server's, and frees the key only at 0.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let count = count_of(inner, target).await?.unwrap_or(0);
        let rest = count.saturating_sub(self.last_of(target.owner));
        self.0.lock().remove(&target.owner);
        if rest == 0 {
            return inner.release(target).await;
        }
        let fewer = Renewal {
            target: target.clone(),
            count: at_least_one(rest),
            lease: MIN_LEASE,
            track: false,
        };
        renew_one(inner, fewer).await?;
        Ok(Released::Freed { others: 0 })
    }
}

//! How holds are renewed: one command for those of each slot, by the script of their kind.

use super::backend::RedisBackend;
use super::families::{lock, permit, rw, semaphore};
use super::reply;
use super::script::{self, Call, Script};
use super::tracking::{self, Order, Track};
use crate::backend::family::{HoldFamily, no_lease};
use crate::backend::{Fault, Home, Renewal, renewed_together};
use crate::config::PERMITS_AT_ONCE;
use crate::resource::key::Key;
use crate::sync::all;

/// The script that states holds of one family once more, and what fills in its keys and arguments.
pub(super) type Renewals<'a> = (
    &'static Script,
    Box<dyn Fn(Call) -> Call + Send + Sync + 'a>,
);

pub(super) fn renewals(family: HoldFamily, batch: &[Renewal]) -> Renewals<'_> {
    match family {
        HoldFamily::Lock | HoldFamily::Fair => {
            (&script::LOCK_RENEW, Box::new(lock::renewals(batch)))
        }
        HoldFamily::ReadWrite => (&script::RW_RENEW, Box::new(rw::renewals(batch))),
        HoldFamily::Permit => (&script::PERMIT_RENEW, Box::new(permit::renewals(batch))),
        HoldFamily::Semaphore => (
            &script::SEMAPHORE_STATE,
            Box::new(semaphore::statements(batch)),
        ),
    }
}

/// Renews holds of one family. Those of several slots go in one command for each slot, all at the same time.
pub(super) async fn renew(backend: &RedisBackend, batch: &[Renewal]) -> Vec<Result<bool, Fault>> {
    let home = |renewal: &Renewal| backend.servers.route(&renewal.target.resource.key).home();
    let of_first = batch.first().map(home);
    // Compared first: groups would take an allocation and a search for each hold, and nearly always there is one.
    if batch.iter().all(|renewal| Some(home(renewal)) == of_first) {
        return renew_in_slot(backend, batch).await;
    }
    let by_home = Home::group(batch.iter().map(home).zip(0..));
    let answers = by_home.into_iter().map(|(_, positions)| async move {
        let of_home = positions.iter().map(|at: &usize| batch[*at].clone());
        let renewed = renew_in_slot(backend, &of_home.collect::<Vec<_>>()).await;
        positions.into_iter().zip(renewed).collect::<Vec<_>>()
    });
    // The caller matches answers to renewals by their positions.
    let mut renewed: Vec<_> = batch.iter().map(|_| None).collect();
    for (at, answer) in all(answers).await.into_iter().flatten() {
        renewed[at] = Some(answer);
    }
    renewed.into_iter().flatten().collect()
}

async fn renew_in_slot(backend: &RedisBackend, batch: &[Renewal]) -> Vec<Result<bool, Fault>> {
    let renewed = async {
        let Some(first) = batch.first() else {
            return Ok(Vec::new());
        };
        let family = first.target.hold_family()?;
        if family == HoldFamily::Semaphore {
            return Err(no_lease(first.target.resource.kind));
        }
        let mut ours = Vec::with_capacity(batch.len());
        for portion in portions(batch) {
            // One after the other: sent at once, they would block the server for as long as one large command.
            let of_portion = run(backend, &first.target.resource.key, family, portion);
            ours.extend(of_portion.await?);
        }
        Ok(ours)
    };
    renewed_together(renewed.await, batch)
}

/// Splits a batch so that each part is for at most [`PERMITS_AT_ONCE`] permits, or for a single owner. A command for more of them
/// would block the server. Locks have one each, and a batch of them is one part.
fn portions(mut batch: &[Renewal]) -> impl Iterator<Item = &[Renewal]> {
    std::iter::from_fn(move || {
        let mut permits = 0_u32;
        let fits = |renewal: &&Renewal| {
            // Saturating: the sum of many owners may be higher than any number, and only the limit counts.
            permits = permits.saturating_add(renewal.target.permits);
            permits <= PERMITS_AT_ONCE
        };
        // At least one: an owner may have more permits than a portion.
        let many = batch.iter().take_while(fits).count().max(1);
        let (portion, rest) = batch.split_at_checked(many)?;
        batch = rest;
        Some(portion)
    })
}

/// Returns of each hold whether the server still has it. The server tracks the keys of those again that are tracked.
async fn run(
    backend: &RedisBackend,
    key: &Key,
    family: HoldFamily,
    batch: &[Renewal],
) -> Result<Vec<bool>, Fault> {
    let (script, with) = renewals(family, batch);
    let tracked = batch.iter().filter(|renewal| renewal.track);
    let value = match tracking::read(tracked.map(|renewal| &renewal.target)) {
        Some(read) => {
            let order = Order::After;
            let track = Track { read: &read, order };
            let route = backend.servers.route(key);
            route.run_tracked(script, track, &with).await
        }
        None => backend.run(key, script, &with).await,
    };
    reply::renewed(value?, batch.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::backend::Target;
    use crate::resource::key::Resource;
    use crate::resource::kind::Kind;
    use crate::resource::owner::Owner;

    #[test]
    fn renewals_of_many_permits_go_in_portions() {
        let renewal = |permits: &u32| {
            let key = Key::new("", "seats").unwrap();
            let resource = Resource {
                kind: Kind::ExpirableSemaphore,
                key,
            };
            let mut target = Target::of(&resource, Owner::new(Uuid::nil(), 1));
            target.permits = *permits;
            Renewal {
                target,
                count: 1,
                lease: Duration::from_secs(30),
                track: false,
            }
        };
        let most = PERMITS_AT_ONCE;
        let batch: Vec<_> = [1, 2, most - 3, 1, most, most + 1, 5, 6]
            .iter()
            .map(renewal)
            .collect();
        let lengths: Vec<_> = portions(&batch).map(<[_]>::len).collect();
        assert_eq!(lengths, [3, 1, 1, 1, 2]);
        assert_eq!(portions(&[]).count(), 0);
    }
}

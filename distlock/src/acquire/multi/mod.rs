//! Several keys as one lock: all of them, or none.
//!
//! Locks of one client whose data is a plain hash of owners form a group. It is acquired by one command: the server grants
//! all of them, or names one that another owner holds. In a cluster there is one command for each slot. The group then waits
//! for that key, and keeps its place in the local queues of the others; see [`wait`](crate::wait).
//!
//! Other kinds of locks and several clients need several groups. The acquisition waits for one group, and then makes a
//! single attempt on each other group. If one of these is refused, everything is released, and the acquisition waits for
//! that group next. An acquisition that waits holds nothing, so two of them cannot wait for each other. The groups are tried
//! server by server: first the plain locks of a client, then its other keys by their names. Processes that call the servers by
//! the same names share that order, so one of two competing acquisitions makes progress. In any case an acquisition that was
//! refused [rests](Group::rest) for a random time, so that two of them do not refuse each other in step.
//!
//! Scopes around the acquisition may have some of the keys. Each of these has a gate, which lets one branch of the scope in
//! at a time. The gates are tried together, like a group. If one is closed, everything is given back, and the acquisition
//! waits at that gate next. The holds of the scopes are entered when nothing else is missing.

mod group;
mod in_scopes;
mod rounds;

use std::sync::Arc;

use self::group::{Group, Parts, rank};
use self::in_scopes::InScopes;
use self::rounds::acquire_groups;
use super::observed::observed;
use super::reentry::within_scopes;
use crate::error::Error;
use crate::local::HoldShares;
use crate::resource::key::Resource;
use crate::resource::kind::Nesting;
use crate::wait::ClientRequest;

/// Acquires all keys. Each request is for one key.
pub(crate) async fn acquire(mut requests: Vec<ClientRequest>) -> Result<HoldShares, Error> {
    sort(&mut requests)?;
    let mut shares = match within_scopes(requests.iter_mut()) {
        None => {
            let groups = Group::all(requests)?;
            acquire_observed(&groups, None).await?
        }
        Some(frames) => {
            let scopes = InScopes { frames, requests };
            Box::pin(acquire_in_scopes(&scopes)).await?
        }
    };
    // `Guard::keys` promises this order. The requests are in that of the slots.
    shares.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(shares)
}

/// Removes duplicates, and sorts the keys in an order that all clients share. Refuses a key that is requested as two
/// kinds of lock.
fn sort(requests: &mut Vec<ClientRequest>) -> Result<(), Error> {
    requests.sort_by(|one, other| rank(one).cmp(&rank(other)));
    requests.dedup_by(|one, other| rank(one) == rank(other));
    for (at, one) in requests.iter().enumerate() {
        let Resource { kind, key } = &one.requested().resource;
        // Those of other clients may stand between the two.
        let others = requests[at + 1..].iter();
        let others = others.take_while(|other| other.requested().resource.key == *key);
        let mut others =
            others.filter(|other| other.registry.session.id == one.registry.session.id);
        if others.any(|other| other.requested().resource.kind.within(*kind) != Nesting::Apart) {
            let reason = "it is wanted as two kinds of lock at once";
            return Err(Error::deadlock(key.text(), reason));
        }
    }
    Ok(())
}

/// Enters the scopes that have some of the keys, and acquires the others.
async fn acquire_in_scopes(scopes: &InScopes) -> Result<HoldShares, Error> {
    loop {
        let gates = scopes.pass_gates(None).await?;
        let groups = scopes.groups(&gates)?;
        if !groups.is_empty() {
            let own = scopes
                .requests
                .iter()
                .zip(&gates)
                .filter_map(|(one, gate)| {
                    let outer = gate.as_ref()?.outer();
                    Some((Arc::clone(&one.registry.session), Arc::clone(outer)))
                });
            let own: Vec<_> = own.collect();
            // Given back if it is left, and at the end: nothing is held while the first group is waited for.
            let mut parts = Some(Parts {
                gates,
                ..Parts::default()
            });
            for group in &groups {
                let left = parts.take().unwrap_or_default();
                parts = group.refuse_own(&own, left).await?;
            }
            drop(parts);
            return acquire_observed(&groups, Some(scopes)).await;
        }
        let mut shares = HoldShares::new();
        if scopes.enter(gates, &mut shares)? {
            return Ok(shares);
        }
    }
}

/// Acquires the keys that no scope has, and then enters the scopes.
async fn acquire_observed(
    groups: &[Group],
    scopes: Option<&InScopes>,
) -> Result<HoldShares, Error> {
    let Some(first) = groups.first() else {
        return Ok(HoldShares::new());
    };
    let keys = groups.iter().flat_map(Group::keys);
    let acquire = || acquire_groups(groups, scopes);
    observed(&first.one, keys, acquire).await
}

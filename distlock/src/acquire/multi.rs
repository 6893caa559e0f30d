//! Several keys as one lock: all of them, or none.
//!
//! Locks of one client whose data is a plain hash of owners form a group. It is acquired by one command: the server grants
//! all of them, or names one that another owner holds. In a cluster there is one command for each slot. The group then waits
//! for that key, and keeps its place in the local queues of the others; see [`wait`](crate::wait).
//!
//! Other kinds of locks and several clients need several groups. The acquisition waits for one group, and then makes a
//! single attempt on each other group. If one of these is refused, everything is released, and the acquisition waits for
//! that group next. An acquisition that waits holds nothing, so two of them cannot wait for each other. All clients try the
//! groups in the same order, so that one of two competing acquisitions makes progress.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::OwnedSemaphorePermit;

use super::observed::observed;
use super::reentry::{Enclosing, check_open, find_enclosing};
use crate::error::Error;
use crate::hold::HoldView;
use crate::key::{Key, Resource};
use crate::kind::Nesting;
use crate::local::HoldShare;
use crate::telemetry::LockType;
use crate::wait::{self, ClientRequest, Request};

type HoldShares = SmallVec<[HoldShare; 1]>;

/// Keys of one client that are waited for together.
struct Group {
    one: ClientRequest,
    /// For each key, the permit from the gate of the scope that admitted it, if there is one.
    gates: SmallVec<[Option<Arc<OwnedSemaphorePermit>>; 1]>,
}

/// Acquires all keys. Each request is for one key.
pub(crate) async fn acquire(mut requests: Vec<ClientRequest>) -> Result<HoldShares, Error> {
    sort(&mut requests)?;
    let (mut shares, mut groups) = (HoldShares::new(), Vec::new());
    for mut one in requests {
        let gate = match find_enclosing(&mut one).await? {
            Enclosing::Reenter(share, _) => {
                shares.push(share);
                continue;
            }
            Enclosing::Beside(permit) => Some(permit),
            Enclosing::None => None,
        };
        check_open(&one)?;
        add_to_group(&mut groups, one, gate);
    }
    if let Some(first) = groups.first() {
        let keys = groups.iter().flat_map(Group::keys);
        let acquire = || acquire_groups(&groups);
        shares.extend(observed(&first.one, LockType::Multi, keys, acquire).await?);
    }
    shares.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(shares)
}

/// Removes duplicates, and sorts the keys in the order that all clients share. Refuses a key that is requested as two
/// kinds of lock.
fn sort(requests: &mut Vec<ClientRequest>) -> Result<(), Error> {
    let rank = |one: &ClientRequest| {
        let Resource { kind, key } = one.requested().resource.clone();
        (slot(one), key, kind, one.registry.session.id)
    };
    requests.sort_by_key(rank);
    requests.dedup_by_key(|one| rank(one));
    for pair in requests.windows(2) {
        let [
            (_, one_key, one, client),
            (_, other_key, other, other_client),
        ] = [&pair[0], &pair[1]].map(rank);
        if one_key == other_key && client == other_client && other.within(one) != Nesting::Apart {
            return Err(Error::Deadlock {
                key: one_key.text().to_owned(),
                reason: "it is wanted as two kinds of lock at once",
            });
        }
    }
    Ok(())
}

/// The part of the server's keys that one command can name. Keys of one slot stand together in the request of a group.
fn slot(one: &ClientRequest) -> u16 {
    let key = &one.requested().resource.key;
    one.registry.session.backend.home(key).slot
}

fn add_to_group(
    groups: &mut Vec<Group>,
    mut one: ClientRequest,
    gate: Option<Arc<OwnedSemaphorePermit>>,
) {
    let is_plain = |request: &Request| {
        let mut requested = request.requested.iter();
        requested.all(|requested| requested.resource.kind.is_plain_lock())
    };
    let fits = |group: &&mut Group| {
        Arc::ptr_eq(&group.one.registry, &one.registry)
            && is_plain(&group.one.request)
            && is_plain(&one.request)
    };
    match groups.iter_mut().find(fits) {
        Some(group) => {
            let requested = &mut group.one.request.requested;
            requested.append(&mut one.request.requested);
            group.gates.push(gate);
        }
        None => groups.push(Group {
            one,
            gates: [gate].into_iter().collect(),
        }),
    }
}

/// Waits for one group and tries the others, until all groups are granted.
async fn acquire_groups(groups: &[Group]) -> Result<HoldShares, Error> {
    let mut first = 0;
    loop {
        let Some(group) = groups.get(first) else {
            return Ok(HoldShares::new());
        };
        let mut shares = group.acquire(&group.one.request).await?;
        let others = groups.iter().enumerate().filter(|(at, _)| *at != first);
        let mut refused = None;
        for (at, other) in others {
            match other.acquire(&other.single_try()).await {
                Ok(more) => shares.extend(more),
                // Also if its server did not answer: waiting for that group retries the attempt until
                // `unavailable_after`.
                Err(error) if (error.is_busy() || error.is_unavailable()) && !group.is_over() => {
                    refused = Some(at);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        match refused {
            None => return Ok(shares),
            // `shares` is dropped at the end of this turn of the loop: nothing is held while the next group waits.
            Some(at) => first = at,
        }
    }
}

impl Group {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let requested = self.one.request.requested.iter();
        requested.map(|requested| &requested.resource.key)
    }

    async fn acquire(&self, request: &Request) -> Result<HoldShares, Error> {
        let registry = &self.one.registry;
        let hold_refs = wait::acquire(registry, request).await?;
        let granted = hold_refs.into_iter().zip(&self.gates);
        Ok(granted
            .map(|(hold_ref, gate)| HoldShare::new(Arc::clone(registry), hold_ref, gate.clone()))
            .collect())
    }

    /// The same keys without waiting.
    fn single_try(&self) -> Request {
        Request {
            wait: Some(Duration::ZERO),
            ..self.one.request.clone()
        }
    }

    /// Whether the wait is over.
    fn is_over(&self) -> bool {
        self.one.registry.session.now() >= self.one.request.deadline()
    }
}

/// Re-enters those holds of a quorum that enclosing scopes already have. Also returns the view of the innermost of them.
pub(crate) async fn reenter_quorum(
    requests: &mut [ClientRequest],
) -> Result<(HoldShares, Option<HoldView>), Error> {
    let (mut shares, mut outer) = (HoldShares::new(), None);
    // In an order that all acquisitions share: two acquisitions that pass the gates in different orders could wait for
    // each other.
    let mut requests: Vec<_> = requests.iter_mut().collect();
    requests.sort_by_key(|one| one.registry.session.id);
    for one in requests {
        match find_enclosing(one).await {
            Ok(Enclosing::Reenter(share, view)) => {
                shares.push(share);
                outer.get_or_insert(view);
            }
            Ok(Enclosing::None) => {}
            Ok(Enclosing::Beside(_)) => {
                return Err(Error::Deadlock {
                    key: one.requested().resource.key.text().to_owned(),
                    reason: "a Redlock cannot be read inside its own write",
                });
            }
            // The hold on one server is lost. The other servers may still be a quorum.
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((shares, outer))
}

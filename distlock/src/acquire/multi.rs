//! Several keys as one: all of them, or none.
//!
//! Locks of one client whose data is nothing but a hash of owners go in one command: it takes all, or says which one is
//! another's. Such a group waits in the queue of that one key and, first in line there, asks for all again.
//!
//! Where there is more than one group (other kinds, several clients) one of them is waited for, and then each other is
//! tried once: what cannot be had at once is waited for next, after all that was taken has gone back. Whoever waits holds
//! nothing, so that no two can wait for each other; tries go in one order, so that of two that meet one gets on.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::reentry::{Enclosing, check_open, find_enclosing};
use crate::error::Error;
use crate::key::Resource;
use crate::kind::Nesting;
use crate::local::{HoldShare, Registry};
use crate::wait::{self, Request, quorum};

type HoldShares = SmallVec<[HoldShare; 1]>;

/// Keys of one client that are asked for in one command.
struct Group {
    registry: Arc<Registry>,
    request: Request,
    /// Places at the gates of scopes that let a key in.
    gates: SmallVec<[Option<Arc<tokio::sync::OwnedSemaphorePermit>>; 1]>,
}

/// Acquires all keys; each ask is for one.
pub(crate) async fn acquire(
    mut requests: Vec<(Arc<Registry>, Request)>,
) -> Result<HoldShares, Error> {
    in_order(&mut requests)?;
    let (mut parts, mut groups) = (HoldShares::new(), Vec::new());
    for (registry, mut request) in requests {
        let gate = match find_enclosing(&registry, &mut request, 0).await? {
            Enclosing::Reenter(part) => {
                parts.push(part);
                continue;
            }
            Enclosing::Beside(permit) => Some(permit),
            Enclosing::None => None,
        };
        check_open(&registry, &request.requested[0].resource.key)?;
        join(&mut groups, registry, request, gate);
    }
    parts.extend(acquire_groups(&groups).await?);
    parts.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(parts)
}

/// Each key once, in the order that all clients share. One key under two kinds that share its data is a mistake.
fn in_order(requests: &mut Vec<(Arc<Registry>, Request)>) -> Result<(), Error> {
    let place = |(registry, request): &(Arc<Registry>, Request)| {
        let Resource { kind, key } = request.requested[0].resource.clone();
        (key, kind, registry.session.id)
    };
    requests.sort_by_key(place);
    requests.dedup_by_key(|request| place(request));
    for pair in requests.windows(2) {
        let [(one_key, one, client), (other_key, other, other_client)] =
            [&pair[0], &pair[1]].map(place);
        if one_key == other_key && client == other_client && other.within(one) != Nesting::Apart {
            return Err(Error::Nested {
                key: one_key.text().to_owned(),
                reason: "it is wanted as two kinds of lock at once",
            });
        }
    }
    Ok(())
}

fn join(
    groups: &mut Vec<Group>,
    registry: Arc<Registry>,
    mut request: Request,
    gate: Option<Arc<tokio::sync::OwnedSemaphorePermit>>,
) {
    let plain = |request: &Request| {
        request
            .requested
            .iter()
            .all(|requested| requested.resource.kind.is_plain_lock())
    };
    let fits = |group: &&mut Group| {
        Arc::ptr_eq(&group.registry, &registry) && plain(&group.request) && plain(&request)
    };
    match groups.iter_mut().find(fits) {
        Some(group) => {
            group.request.requested.append(&mut request.requested);
            group.gates.push(gate);
        }
        None => groups.push(Group {
            registry,
            request,
            gates: [gate].into_iter().collect(),
        }),
    }
}

/// Waits for one group and tries the others, until nothing is in the way.
async fn acquire_groups(groups: &[Group]) -> Result<HoldShares, Error> {
    let mut first = 0;
    loop {
        let Some(group) = groups.get(first) else {
            return Ok(HoldShares::new());
        };
        let mut parts = group.acquire(&group.request).await?;
        let others = groups.iter().enumerate().filter(|(at, _)| *at != first);
        let mut refused = None;
        for (at, other) in others {
            match other.acquire(&other.once()).await {
                Ok(more) => parts.extend(more),
                // Of one that does not answer, its own wait finds out whether it ever does.
                Err(error) if (error.is_busy() || error.is_unavailable()) && !group.is_over() => {
                    refused = Some(at);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        match refused {
            None => return Ok(parts),
            Some(at) => first = at,
        }
    }
}

impl Group {
    async fn acquire(&self, request: &Request) -> Result<HoldShares, Error> {
        let hold_refs = wait::acquire(&self.registry, request).await?;
        let parts = hold_refs.into_iter().zip(&self.gates);
        Ok(parts
            .map(|(hold_ref, gate)| {
                HoldShare::new(Arc::clone(&self.registry), hold_ref, gate.clone())
            })
            .collect())
    }

    /// The same keys, asked for once.
    fn once(&self) -> Request {
        Request {
            wait: Some(Duration::ZERO),
            ..self.request.clone()
        }
    }

    /// Is the wait over?
    fn is_over(&self) -> bool {
        self.registry.session.now() >= self.request.deadline()
    }
}

/// The parts of a quorum that the scopes around have already.
pub(crate) async fn enter_again(
    requests: &mut [(Arc<Registry>, Request)],
) -> Result<HoldShares, Error> {
    let mut parts = HoldShares::new();
    // In an order that all have in common: who waits at one gate has passed others.
    let mut requests: Vec<_> = requests.iter_mut().collect();
    requests.sort_by_key(|(registry, _)| registry.session.id);
    for (registry, request) in requests {
        let margin = quorum::margin(registry, request);
        match find_enclosing(registry, request, 0).await {
            Ok(Enclosing::Reenter(part)) => parts.push(part.with_margin(margin)),
            Ok(Enclosing::None) => {}
            Ok(Enclosing::Beside(_)) => {
                return Err(Error::Nested {
                    key: request.requested[0].resource.key.text().to_owned(),
                    reason: "a Redlock cannot be read inside its own write",
                });
            }
            // One of the servers lost its hold: the others may do.
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parts)
}

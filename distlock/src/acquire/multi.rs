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

use super::reentry::{Around, check_open, look_around};
use crate::error::Error;
use crate::kind::Nesting;
use crate::local::{Part, Registry};
use crate::wait::{self, Ask, Wanted, quorum};

type Parts = SmallVec<[Part; 1]>;

/// Keys of one client that are asked for in one command.
struct Group {
    registry: Arc<Registry>,
    ask: Ask,
    /// Places at the gates of scopes that let a key in.
    gates: SmallVec<[Option<Arc<tokio::sync::OwnedSemaphorePermit>>; 1]>,
}

/// Acquires all keys; each ask is for one.
pub(crate) async fn acquire(mut asks: Vec<(Arc<Registry>, Ask)>) -> Result<Parts, Error> {
    in_order(&mut asks)?;
    let (mut parts, mut groups) = (Parts::new(), Vec::new());
    for (registry, mut ask) in asks {
        let gate = match look_around(&registry, &mut ask, 0).await? {
            Around::Again(part) => {
                parts.push(part);
                continue;
            }
            Around::Inside(place) => Some(place),
            Around::Nothing => None,
        };
        check_open(&registry, &ask.wanted[0].key)?;
        join(&mut groups, registry, ask, gate);
    }
    parts.extend(acquire_groups(&groups).await?);
    parts.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(parts)
}

/// Each key once, in the order that all clients share. One key under two kinds that share its data is a mistake.
fn in_order(asks: &mut Vec<(Arc<Registry>, Ask)>) -> Result<(), Error> {
    let place = |(registry, ask): &(Arc<Registry>, Ask)| {
        let Wanted { kind, key, .. } = &ask.wanted[0];
        (key.clone(), *kind, registry.keeper.id)
    };
    asks.sort_by_key(place);
    asks.dedup_by_key(|ask| place(ask));
    for pair in asks.windows(2) {
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
    mut ask: Ask,
    gate: Option<Arc<tokio::sync::OwnedSemaphorePermit>>,
) {
    let plain = |ask: &Ask| ask.wanted.iter().all(|wanted| wanted.kind.is_plain_lock());
    let fits = |group: &&mut Group| {
        Arc::ptr_eq(&group.registry, &registry) && plain(&group.ask) && plain(&ask)
    };
    match groups.iter_mut().find(fits) {
        Some(group) => {
            group.ask.wanted.append(&mut ask.wanted);
            group.gates.push(gate);
        }
        None => groups.push(Group {
            registry,
            ask,
            gates: [gate].into_iter().collect(),
        }),
    }
}

/// Waits for one group and tries the others, until nothing is in the way.
async fn acquire_groups(groups: &[Group]) -> Result<Parts, Error> {
    let mut first = 0;
    loop {
        let Some(group) = groups.get(first) else {
            return Ok(Parts::new());
        };
        let mut parts = group.acquire(&group.ask).await?;
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
    async fn acquire(&self, ask: &Ask) -> Result<Parts, Error> {
        let tenures = wait::acquire(&self.registry, ask).await?;
        let parts = tenures.into_iter().zip(&self.gates);
        Ok(parts
            .map(|(tenure, gate)| Part::new(Arc::clone(&self.registry), tenure, gate.clone()))
            .collect())
    }

    /// The same keys, asked for once.
    fn once(&self) -> Ask {
        Ask {
            wait: Some(Duration::ZERO),
            ..self.ask.clone()
        }
    }

    /// Is the wait over?
    fn is_over(&self) -> bool {
        self.registry.keeper.now() >= self.ask.deadline()
    }
}

/// The parts of a quorum that the scopes around have already.
pub(crate) async fn enter_again(asks: &mut [(Arc<Registry>, Ask)]) -> Result<Parts, Error> {
    let mut parts = Parts::new();
    // In an order that all have in common: who waits at one gate has passed others.
    let mut asks: Vec<_> = asks.iter_mut().collect();
    asks.sort_by_key(|(registry, _)| registry.keeper.id);
    for (registry, ask) in asks {
        let margin = quorum::margin(registry, ask);
        match look_around(registry, ask, 0).await {
            Ok(Around::Again(part)) => parts.push(part.with_margin(margin)),
            Ok(Around::Nothing) => {}
            Ok(Around::Inside(_)) => {
                return Err(Error::Nested {
                    key: ask.wanted[0].key.text().to_owned(),
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

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

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;

use self::group::{Group, Parts, rank};
use self::in_scopes::InScopes;
use super::observed::observed;
use super::reentry::{ClosedGate, OpenGates, check_open, within_scopes};
use crate::error::Error;
use crate::local::{HoldShare, HoldShares};
use crate::resource::key::Resource;
use crate::resource::kind::Nesting;
use crate::sync::first;
use crate::telemetry::LockType;
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
    observed(&first.one, LockType::Multi, keys, acquire).await
}

/// Waits for one group or one gate, and tries all the rest, until nothing is refused.
async fn acquire_groups(groups: &[Group], scopes: Option<&InScopes>) -> Result<HoldShares, Error> {
    let mut first = 0;
    let mut passed = None;
    // How often a group was busy after others had been granted.
    let mut refused = 0;
    // How long it has taken keys in a row that were all granted, and not held together.
    let mut too_slow_for = Duration::ZERO;
    // The scopes have closed since, if these are other groups.
    let mut regrouped: Vec<Group>;
    let mut groups = groups;
    loop {
        // Everything that was granted or passed is dropped at the end of each turn of the loop: nothing is held while the
        // next group or the next gate is waited for.
        let mut granted = None;
        let parts = match passed.take() {
            Some(gates) => Parts {
                gates,
                ..Parts::default()
            },
            None => match unless_closed(groups, acquire_first(&groups[first], scopes)).await? {
                Ok(parts) => {
                    granted = Some(first);
                    parts
                }
                Err(closed) => {
                    // Boxed, here and below: this is rare, and each acquisition would have room for it.
                    let pass = pass_closed(scopes, closed);
                    passed = Box::pin(unless_closed(groups, pass)).await?;
                    too_slow_for = Duration::ZERO;
                    continue;
                }
            },
        };
        if let Some(now) = regroup(groups, scopes, &parts.gates)? {
            regrouped = now;
            (groups, first, passed) = (&regrouped, 0, Some(parts.gates));
            too_slow_for = Duration::ZERO;
            continue;
        }
        // From the first grant on, by the clock of its client. Those of other clients may have other starts.
        let began = groups[first].one.registry.session.now();
        let tried = match groups {
            [_] if granted.is_some() => Tried::Granted(parts),
            _ => Box::pin(try_others(groups, granted, parts)).await?,
        };
        let Parts { mut shares, gates } = match tried {
            Tried::Granted(parts) => parts,
            Tried::Refused { at, is_busy } => {
                // Not for a server that did not answer: its answer may take seconds, and the wait for it has pauses of its own.
                if is_busy {
                    refused += 1;
                    let taken_for = groups[first].one.registry.session.now().since(began);
                    let rest = groups[at].rest(taken_for, refused).map(Ok);
                    Box::pin(unless_closed(groups, rest)).await?;
                }
                (first, too_slow_for) = (at, Duration::ZERO);
                continue;
            }
            Tried::Absent => continue,
        };
        // They are not renewed before this, so one of them may have ended.
        if groups.len() > 1 && !shares.iter().all(|share| share.hold_ref().is_held()) {
            drop(shares);
            too_slow_for += groups[first].one.registry.session.now().since(began);
            groups[first].check_patience(too_slow_for)?;
            continue;
        }
        // The client of one group may have been closed while another group was asked for.
        groups.iter().try_for_each(|group| check_open(&group.one))?;
        let entered = scopes.map(|scopes| scopes.enter(gates, &mut shares));
        if entered.transpose()?.unwrap_or(true) {
            shares.iter().for_each(HoldShare::has_guard);
            return Ok(shares);
        }
    }
}

/// Waits for one group or one gate, unless the client of another group is closed meanwhile.
async fn unless_closed<T>(
    groups: &[Group],
    wait: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let closing = async {
        // The wait of a single group notices that by itself.
        let [_, _, ..] = groups else {
            return std::future::pending().await;
        };
        let sessions = groups.iter().map(|group| &group.one.registry.session);
        // Boxed, because `select_all` moves them.
        let closing = sessions.map(|session| Box::pin(session.closed.wait()));
        let ((), at, _) = select_all(closing).await;
        Err(groups[at].one.request.closed())
    };
    // In this order: what was granted counts. It is given back if another client is found closed later.
    first(wait, closing).await
}

/// Waits for one group, and then tries the gates.
async fn acquire_first(
    group: &Group,
    scopes: Option<&InScopes>,
) -> Result<Result<Parts, ClosedGate>, Error> {
    let shares = group.acquire(&group.one.request).await?;
    let gates = match scopes {
        Some(scopes) => scopes.try_gates()?,
        None => Ok(OpenGates::new()),
    };
    // If another branch of the code has closed a gate, the shares end here: nothing is held while the acquisition waits for it.
    Ok(gates.map(|gates| Parts { shares, gates }))
}

/// Passes all gates, and waits at the closed one first. `None` without scopes.
async fn pass_closed(
    scopes: Option<&InScopes>,
    closed: ClosedGate,
) -> Result<Option<OpenGates>, Error> {
    match scopes {
        Some(scopes) => scopes.pass_gates(Some(closed)).await.map(Some),
        None => Ok(None),
    }
}

/// The groups as they are now, if scopes have closed since these were made.
fn regroup(
    groups: &[Group],
    scopes: Option<&InScopes>,
    gates: &OpenGates,
) -> Result<Option<Vec<Group>>, Error> {
    let Some(scopes) = scopes else {
        return Ok(None);
    };
    let now = scopes.groups(gates)?;
    Ok((Group::count(&now) != Group::count(groups)).then_some(now))
}

/// The result of an attempt on each group.
enum Tried {
    Granted(Parts),
    /// The group `at` is refused. `is_busy`: another owner holds a key of it.
    Refused {
        at: usize,
        is_busy: bool,
    },
    /// The acquisition was not polled for so long that its parts were ended.
    Absent,
}

/// Makes one attempt on each group but the one that was granted already, until one is refused.
async fn try_others(
    groups: &[Group],
    granted: Option<usize>,
    mut parts: Parts,
) -> Result<Tried, Error> {
    for (at, group) in groups.iter().enumerate() {
        if granted == Some(at) {
            continue;
        }
        let single_try = group.single_try();
        let session = &group.one.registry.session;
        // The server of this group may be silent.
        let acquired = group.in_time(group.acquire(&single_try));
        let (acquired, kept) = session.beside(|| parts, acquired).await;
        let Some(kept) = kept.take() else {
            return Ok(Tried::Absent);
        };
        parts = kept;
        match acquired
            .flatten()
            .unwrap_or_else(|| Err(group.unanswered()))
        {
            Ok(more) => parts.shares.extend(more),
            // Also if its server did not answer: waiting for that group retries the attempt until `unavailable_after`.
            Err(error) if group.one.may_pass(&error) => {
                let own = |share: &HoldShare| {
                    let hold = Arc::clone(share.hold_ref().hold());
                    (Arc::clone(share.session()), hold)
                };
                let own: Vec<_> = parts.shares.iter().map(own).collect();
                return match group.refuse_own(&own, parts).await? {
                    None => Ok(Tried::Absent),
                    Some(_) if group.is_over() => Err(error),
                    Some(_) => Ok(Tried::Refused {
                        at,
                        is_busy: error.is_busy(),
                    }),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Tried::Granted(parts))
}

//! The locks whose data is a hash of owners, in memory: Redisson's `RLock` and its kin, whose count is stated and not
//! added to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::store::{State, Value};
use crate::backend::{Attempt, Attempted, Fault, Inspected, Released, Renewal, Target};
use crate::clock::{self, Tick};
use crate::key::Key;
use crate::kind::{Family, Kind};
use crate::owner::Owner;

/// Who holds a lock, and how often each has entered.
pub(super) type Holders = BTreeMap<Holder, u32>;

/// Who a lock is taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Owner(Owner),
    /// Nobody any more: this one has left it for the rest of a time.
    Rest(Owner),
}

impl Holder {
    fn text(&self) -> String {
        match self {
            Self::Owner(owner) => owner.text(),
            Self::Rest(owner) => format!("{}:rest", owner.text()),
        }
    }
}

/// The holders as a server shows them.
#[cfg(feature = "test-util")]
pub(super) fn shown(holders: &Holders) -> BTreeMap<String, u64> {
    let shown = |(holder, count): (&Holder, &u32)| (holder.text(), u64::from(*count));
    holders.iter().map(shown).collect()
}

/// The holders, where the key is a lock of this kind. One of another kind has none of ours.
fn holders<'a>(state: &'a mut State, key: &Key) -> Result<Option<&'a mut Holders>, Fault> {
    match state
        .values
        .get_mut(key.name())
        .map(|entry| &mut entry.value)
    {
        Some(Value::Lock(holders)) => Ok(Some(holders)),
        Some(Value::ReadWrite(_)) | None => Ok(None),
        Some(_) => Err(Fault::WrongType),
    }
}

/// What a key of another kind means for an attempt: a lock is held by another, what is no lock is in the wrong place.
fn stranger(state: &State, key: &Key, now: Tick) -> Option<Result<Attempted, Fault>> {
    match &state.values.get(key.name())?.value {
        Value::Lock(_) => None,
        Value::ReadWrite(_) => Some(Ok(Attempted::Held {
            ttl: state.ttl(key.name(), now),
        })),
        _ => Some(Err(Fault::WrongType)),
    }
}

pub(super) fn attempt(state: &mut State, attempt: &Attempt, now: Tick) -> Result<Attempted, Fault> {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let expires = now.after(attempt.lease);
    if let Some(strange) = stranger(state, key, now) {
        return strange;
    }
    let anew = match holders(state, key)? {
        Some(holders) => match holders.get_mut(&Holder::Owner(*owner)) {
            Some(count) => {
                *count = 1;
                false
            }
            None => {
                let ttl = state.ttl(key.name(), now);
                return Ok(Attempted::Held { ttl });
            }
        },
        None => {
            let holders = Value::Lock(BTreeMap::from([(Holder::Owner(*owner), 1)]));
            state.insert(key.name(), holders, expires);
            true
        }
    };
    state.expire_at_least(key.name(), expires);
    let fenced = attempt.target.resource.kind == Kind::Fenced;
    let token = fenced.then(|| token(state, attempt, anew));
    Ok(Attempted::Granted { token })
}

/// Takes all or none, and tells of the first that is another's.
pub(super) fn attempt_all(
    state: &mut State,
    attempts: &[Attempt],
    now: Tick,
) -> Result<(usize, Attempted), Fault> {
    for (at, Attempt { target, .. }) in attempts.iter().enumerate() {
        if let Some(strange) = stranger(state, &target.resource.key, now) {
            return strange.map(|held| (at, held));
        }
        if !is_free_for(state, target)? {
            let ttl = state.ttl(target.resource.key.name(), now);
            return Ok((at, Attempted::Held { ttl }));
        }
    }
    for one in attempts {
        attempt(state, one, now)?;
    }
    Ok((0, Attempted::Granted { token: None }))
}

/// The fencing token of a grant: a new one, or the last where it was asked for again; but not one that was lost, nor one
/// below what the client has seen of a server that has forgotten it.
fn token(state: &mut State, attempt: &Attempt, anew: bool) -> u64 {
    let key = Arc::clone(attempt.target.resource.key.name());
    let last = state.tokens.entry(key).or_default();
    if anew || *last == 0 || *last < attempt.above {
        let above = attempt.above.max(*last) + 1;
        *last = clock::micros_since_1970().max(above);
    }
    *last
}

pub(super) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let Target {
        resource, owner, ..
    } = &renewal.target;
    let key = &resource.key;
    // A value of another type is nobody's lock.
    let Ok(Some(holders)) = holders(state, key) else {
        return false;
    };
    let Some(count) = holders.get_mut(&Holder::Owner(*owner)) else {
        return false;
    };
    *count = renewal.count;
    state.expire_at_least(key.name(), now.after(renewal.lease));
    true
}

pub(super) fn is_held_by(state: &mut State, target: &Target) -> Result<bool, Fault> {
    let holders = holders(state, &target.resource.key)?;
    Ok(holders.is_some_and(|holders| holders.contains_key(&Holder::Owner(target.owner))))
}

fn is_free_for(state: &mut State, target: &Target) -> Result<bool, Fault> {
    Ok(holders(state, &target.resource.key)?.is_none() || is_held_by(state, target)?)
}

pub(super) fn release(
    state: &mut State,
    target: &Target,
    (client, now): (u64, Tick),
) -> Result<Released, Fault> {
    if !is_held_by(state, target)? {
        return Ok(Released::NotOurs);
    }
    if target.taken_for.is_zero() {
        state.remove(target.resource.key.name());
    } else {
        let rest = Value::Lock(BTreeMap::from([(Holder::Rest(target.owner), 1)]));
        state.insert(
            target.resource.key.name(),
            rest,
            now.after(target.taken_for),
        );
    }
    let others_wait = state.publish(client, Family::Lock, &target.resource.key);
    Ok(Released::Freed { others_wait })
}

/// Ends several. A value of another type is nobody's lock, and no reason to keep the others.
pub(super) fn release_all(
    state: &mut State,
    targets: &[Target],
    at: (u64, Tick),
) -> Result<Vec<Released>, Fault> {
    let one = |target: &Target| match release(state, target, at) {
        Err(Fault::WrongType) => Ok(Released::NotOurs),
        released => released,
    };
    targets.iter().map(one).collect()
}

/// Removes a lock, whoever holds it; whether there was one.
pub(super) fn remove(state: &mut State, key: &Key) -> Result<bool, Fault> {
    let value = state.values.get(key.name()).map(|entry| &entry.value);
    // Whatever kind of lock it is: as with Redisson, whose locks of all kinds are hashes.
    let is_lock = match value {
        Some(Value::Lock(_) | Value::ReadWrite(_)) => true,
        Some(_) => return Err(Fault::WrongType),
        None => false,
    };
    Ok(is_lock && state.remove(key.name()))
}

pub(super) fn force_release(state: &mut State, key: &Key, client: u64) -> Result<bool, Fault> {
    let freed = remove(state, key)?;
    if freed {
        state.publish(client, Family::Lock, key);
    }
    Ok(freed)
}

pub(super) fn inspect(state: &mut State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    let holder = |(holder, count): (&Holder, &u32)| (holder.text().into_bytes(), u64::from(*count));
    let holders = match state.values.get(key.name()).map(|entry| &entry.value) {
        Some(Value::Lock(holders)) => holders.iter().map(holder).collect(),
        Some(Value::ReadWrite(holders)) => holders.holders().collect(),
        Some(_) => return Err(Fault::WrongType),
        None => return Ok(Inspected::default()),
    };
    let ttl = state.ttl(key.name(), now);
    Ok(Inspected { holders, ttl })
}

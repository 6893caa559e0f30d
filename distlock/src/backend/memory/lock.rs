//! The locks whose data is a hash of owners, in memory: Redisson's `RLock` and its relatives.
//!
//! A verb states a count and never adds to it, so a verb that is sent twice leaves what it left the first time.

use std::collections::BTreeMap;

use super::Call;
use super::store::{State, Value};
use crate::backend::{Attempt, Attempted, Fault, Inspected, Released, Renewal, Target};
use crate::clock::{self, Tick};
use crate::key::Key;
use crate::kind::{Family, Kind};
use crate::owner::Owner;

/// Who holds a lock, and how often each holder has entered it.
pub(super) type Holders = BTreeMap<Holder, u32>;

/// What keeps a lock taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Owner(Owner),
    /// Nobody. This owner has released the lock, but it stays taken for the rest of its minimum hold time.
    Released(Owner),
}

impl Holder {
    fn text(&self) -> String {
        match self {
            Self::Owner(owner) => owner.text(),
            Self::Released(owner) => format!("{}:rest", owner.text()),
        }
    }
}

/// The holders by the names that Redis shows for them.
#[cfg(feature = "test-util")]
pub(super) fn shown(holders: &Holders) -> BTreeMap<String, u64> {
    let shown = |(holder, count): (&Holder, &u32)| (holder.text(), u64::from(*count));
    holders.iter().map(shown).collect()
}

/// The holders of a lock. A read/write lock under the key has none: no owner here can hold it.
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

/// The answer to an attempt on a key that holds another kind of value: another kind of lock counts as held by another
/// owner, and anything else has the wrong type.
fn foreign(state: &State, key: &Key, now: Tick) -> Option<Result<Attempted, Fault>> {
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
    if let Some(answer) = foreign(state, key, now) {
        return answer;
    }
    let is_new = match holders(state, key)? {
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
    let is_fenced = resource.kind == Kind::Fenced;
    let token = is_fenced.then(|| {
        let now = clock::micros_since_1970();
        let tokens = &mut state.tokens;
        tokens.of_grant(key.name(), is_new, attempt.above, now)
    });
    Ok(Attempted::Granted { token })
}

/// Grants all attempts or none. A refusal names the first key that another owner holds.
pub(super) fn attempt_all(
    state: &mut State,
    attempts: &[Attempt],
    now: Tick,
) -> Result<(usize, Attempted), Fault> {
    for (at, Attempt { target, .. }) in attempts.iter().enumerate() {
        if let Some(answer) = foreign(state, &target.resource.key, now) {
            return answer.map(|held| (at, held));
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

pub(super) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let Target {
        resource, owner, ..
    } = &renewal.target;
    let key = &resource.key;
    // A value of another type means that the owner's lock is gone: one lost hold must not fail the whole batch.
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

pub(super) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    if !is_held_by(state, target)? {
        return Ok(Released::NotOurs);
    }
    let key = &target.resource.key;
    if target.taken_for.is_zero() {
        state.remove(key.name());
    } else {
        let released = Value::Lock(BTreeMap::from([(Holder::Released(target.owner), 1)]));
        state.insert(key.name(), released, call.now.after(target.taken_for));
    }
    let others = state.publish(call.client, Family::Lock, key);
    Ok(Released::Freed { others })
}

/// Ends several holds. A value of another type is not the owner's lock, and does not keep the others from being
/// released.
pub(super) fn release_all(
    state: &mut State,
    targets: &[Target],
    call: Call,
) -> Result<Vec<Released>, Fault> {
    let one = |target: &Target| match release(state, target, call) {
        Err(Fault::WrongType) => Ok(Released::NotOurs),
        released => released,
    };
    targets.iter().map(one).collect()
}

/// Removes a lock with all its holders, and answers whether there was one.
pub(super) fn remove(state: &mut State, key: &Key) -> Result<bool, Fault> {
    let value = state.values.get(key.name()).map(|entry| &entry.value);
    let is_lock = match value {
        Some(Value::Lock(_)) => true,
        Some(_) => return Err(Fault::WrongType),
        None => false,
    };
    Ok(is_lock && state.remove(key.name()))
}

pub(super) fn force_release(state: &mut State, key: &Key, call: Call) -> Result<bool, Fault> {
    let freed = remove(state, key)?;
    if freed {
        state.publish(call.client, Family::Lock, key);
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

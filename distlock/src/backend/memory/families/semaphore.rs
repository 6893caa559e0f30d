//! The semaphore in memory: Redisson's `RSemaphore`, and a list of the owners that have permits.

use std::collections::HashMap;

use super::number::{self, Mark};
use crate::backend::memory::call::Call;
use crate::backend::memory::store::{Name, State, Value};
use crate::backend::{Attempt, Attempted, Fault, Forced, Released, Seen, SemaphoreChange, Target};
use crate::clock::Tick;
use crate::config::MAX_SUM;
use crate::resource::key::Key;
use crate::resource::kind::Family;
use crate::resource::owner::Owner;

/// The owners that have permits of one semaphore, and how many each.
pub(crate) type Owners = HashMap<Owner, u32>;

/// The name under which the owners are stored: a key beside the number's, as over Redis.
fn owners_name(key: &Key) -> Name {
    format!("{{{}}}:distlock_owners", key.name()).into()
}

/// The key whose owners are stored under this name.
#[cfg(feature = "testing")]
pub(crate) fn key_of_owners(name: &str) -> Option<&str> {
    name.strip_prefix('{')?.strip_suffix("}:distlock_owners")
}

/// The owners that have permits, once each.
#[cfg(feature = "testing")]
pub(crate) fn holders(state: &mut State, key: &Key) -> Vec<(Vec<u8>, u64)> {
    let owners = owners(state, key)
        .into_iter()
        .flat_map(|owners| owners.keys());
    let mut holders: Vec<_> = owners.map(|owner| (owner.text().into_bytes(), 1)).collect();
    holders.sort_unstable();
    holders
}

/// The owners that have permits, and how many each, sorted.
pub(crate) fn permits_by_owner(state: &State, key: &Key) -> Vec<(Vec<u8>, u64)> {
    let owners = state
        .values
        .get(&owners_name(key))
        .map(|entry| &entry.value);
    let Some(Value::Owners(owners)) = owners else {
        return Vec::new();
    };
    let owners = owners.iter();
    let mut owners: Vec<_> = owners
        .map(|(owner, permits)| (owner.text().into_bytes(), u64::from(*permits)))
        .collect();
    owners.sort_unstable();
    owners
}

/// The owners that have permits; `None` if none has any.
fn owners<'a>(state: &'a mut State, key: &Key) -> Option<&'a mut Owners> {
    match &mut state.values.get_mut(&owners_name(key))?.value {
        Value::Owners(owners) => Some(owners),
        _ => None,
    }
}

fn add_owner(state: &mut State, key: &Key, owner: Owner, permits: u32) {
    match owners(state, key) {
        Some(owners) => drop(owners.insert(owner, permits)),
        None => {
            let first = Value::Owners(Owners::from([(owner, permits)]));
            state.insert(&owners_name(key), first, Tick::NEVER);
        }
    }
}

/// Moves the end of the number and of its owners after a use.
fn used(state: &mut State, key: &Key, is_new: bool, call: Call) {
    if key.expires_after().is_zero() {
        return;
    }
    number::used(state, key, is_new, Some(&owners_name(key)), call.now);
}

/// Removes an owner, and answers whether it had permits.
fn remove_owner(state: &mut State, key: &Key, owner: Owner) -> bool {
    let Some(owners) = owners(state, key) else {
        return false;
    };
    let had = owners.remove(&owner).is_some();
    if owners.is_empty() {
        state.remove(&owners_name(key));
    }
    had
}

pub(crate) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    call: Call,
) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let key = &attempt.target.resource.key;
    let Some(free) = number::get(state, key)? else {
        return Ok(Attempted::Unset);
    };
    let granted = Attempted::Granted { token: None };
    // An earlier copy of this attempt was granted.
    if owners(state, key).is_some_and(|owners| owners.contains_key(&target.owner)) {
        return Ok(granted);
    }
    let wanted = i64::from(target.permits);
    let was_withdrawn = number::mark(state, key, target.owner) == Some(Mark::Ended);
    if was_withdrawn || free < wanted {
        let others = owners(state, key).map_or(0, |owners| owners.len() as u64);
        return Ok(Attempted::held_by_many(None, others, false));
    }
    number::set(state, key, free - wanted);
    add_owner(state, key, target.owner, target.permits);
    number::used(state, key, false, None, call.now);
    // The owners stay as long as the number, even if another program set its end.
    let end = state.expiry(key.name());
    if end != Tick::NEVER {
        state.expire_at(&owners_name(key), end);
    }
    Ok(granted)
}

/// Ends an owner, and remembers it if one of its attempts may still arrive.
pub(crate) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let is_set = number::get(state, key)?.is_some();
    let had = remove_owner(state, key, target.owner);
    if target.in_doubt {
        let until = call.remember_until();
        number::remember(state, key, target.owner, Mark::Ended, until);
    }
    // Permits of a semaphore that was removed since are not given back.
    if !had || !is_set {
        return Ok(Released::NotOurs);
    }
    used(state, key, false, call);
    let mut others = 0;
    if target.permits > 0 {
        let free = number::add(state, key, i64::from(target.permits))?;
        if free > 0 {
            others = state.publish(call.client, Family::Semaphore, key);
        }
    }
    Ok(Released::Freed { others })
}

/// Releases, and remembers the owner: a late attempt of it takes nothing.
pub(crate) fn withdraw(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let mut target = target.clone();
    target.in_doubt = true;
    release(state, &target, call)
}

pub(crate) fn force_release(
    state: &mut State,
    key: &Key,
    seen: Option<&Seen>,
) -> Result<Forced, Fault> {
    let owners = permits_by_owner(state, key).into_iter();
    let are_seen = seen.is_none_or(|seen| seen.are(owners.map(|(owner, _)| owner)));
    if !are_seen && number::get(state, key)?.is_some() {
        return Ok(Forced::Unseen);
    }
    let removed = number::remove(state, key, seen)?;
    if removed == Forced::Unseen {
        return Ok(removed);
    }
    // Also if the number was gone: the owners of a removed semaphore hold nothing.
    state.remove(&owners_name(key));
    Ok(removed)
}

pub(crate) fn adjust(
    state: &mut State,
    key: &Key,
    request: Owner,
    change: SemaphoreChange,
    call: Call,
) -> Result<i64, Fault> {
    match change {
        SemaphoreChange::Count => number::count(state, key),
        SemaphoreChange::TrySet(permits) => number::once(state, key, request, call, |state| {
            try_set(state, key, permits.into(), call)
        }),
        SemaphoreChange::Add(permits) => number::once(state, key, request, call, |state| {
            add(state, key, permits.into(), call)
        }),
        SemaphoreChange::Drain => {
            number::once(state, key, request, call, |state| drain(state, key, call))
        }
    }
}

fn try_set(state: &mut State, key: &Key, permits: i64, call: Call) -> Result<i64, Fault> {
    if number::get(state, key)?.is_some() {
        used(state, key, false, call);
        return Ok(0);
    }
    // A new semaphore has no owners. Those of a removed semaphore do not count.
    state.remove(&owners_name(key));
    number::set(state, key, permits);
    used(state, key, true, call);
    if permits > 0 {
        state.publish(call.client, Family::Semaphore, key);
    }
    Ok(1)
}

fn add(state: &mut State, key: &Key, permits: i64, call: Call) -> Result<i64, Fault> {
    let sum = number::count(state, key)? + permits;
    if sum.unsigned_abs() > MAX_SUM {
        return Ok(sum);
    }
    let is_new = number::get(state, key)?.is_none();
    // As in `try_set`.
    if is_new {
        state.remove(&owners_name(key));
    }
    let free = number::add(state, key, permits)?;
    used(state, key, is_new, call);
    if permits > 0 && free > 0 {
        state.publish(call.client, Family::Semaphore, key);
    }
    Ok(free)
}

fn drain(state: &mut State, key: &Key, call: Call) -> Result<i64, Fault> {
    let Some(free) = number::get(state, key)? else {
        return Ok(0);
    };
    number::set(state, key, 0);
    used(state, key, false, call);
    Ok(free)
}

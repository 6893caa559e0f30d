//! The reentrant lock in memory: Redisson's `RLock`, whose count is stated and not added to.

use std::time::Duration;

use super::State;
use crate::backend::{Attempted, Inspected, Renewal, Target};
use crate::clock::Tick;
use crate::key::Key;
use crate::owner::Owner;

pub(super) fn attempt(state: &mut State, target: &Target, lease: Duration, now: Tick) -> Attempted {
    let name = target.key.name();
    let Some(entry) = state.locks.get_mut(name) else {
        state.insert(name, target.owner, now.after(lease));
        return Attempted::Granted;
    };
    match entry.holders.get_mut(&target.owner) {
        Some(count) => *count = 1,
        None => {
            let ttl = Some(entry.expires.left(now));
            return Attempted::Held { ttl };
        }
    }
    state.expire_at_least(name, now.after(lease));
    Attempted::Granted
}

pub(super) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let Target { key, owner, .. } = &renewal.target;
    let entry = state.locks.get_mut(key.name());
    let Some(count) = entry.and_then(|entry| entry.holders.get_mut(owner)) else {
        return false;
    };
    *count = renewal.count;
    state.expire_at_least(key.name(), now.after(renewal.lease));
    true
}

pub(super) fn release(state: &mut State, target: &Target) -> bool {
    let name = target.key.name();
    let ours = state
        .locks
        .get(name)
        .is_some_and(|entry| entry.holders.contains_key(&target.owner));
    ours && state.remove(name)
}

pub(super) fn inspect(state: &mut State, key: &Key, now: Tick) -> Inspected {
    let Some(entry) = state.locks.get(key.name()) else {
        return Inspected::default();
    };
    let holder = |(owner, count): (&Owner, &u32)| (owner.text().into_bytes(), u64::from(*count));
    Inspected {
        holders: entry.holders.iter().map(holder).collect(),
        ttl: Some(entry.expires.left(now)),
    }
}

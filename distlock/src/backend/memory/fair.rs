//! The fair lock in memory: the lock's hash of owners, and the queue of those who wait for it.
//!
//! A waiter is dead when it was not heard of for as long as its place is kept. The dead go at the next verb on their
//! key, wherever they stand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::lock;
use super::store::{Name, State};
use crate::backend::{Attempt, Attempted, Fault, Released, Target};
use crate::clock::Tick;
use crate::config::WAITER_TIMEOUT;
use crate::key::Key;
use crate::kind::Family;
use crate::owner::Owner;

/// Who waits, in order of arrival, and when each is dead.
pub(super) type Places = VecDeque<(Owner, Tick)>;

pub(super) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    client: u64,
    now: Tick,
) -> Result<Attempted, Fault> {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let died = drop_dead(state, key.name(), now);
    let head = head(state, key.name());
    let held = state.values.contains_key(key.name());
    if held || head.is_none_or(|head| head == *owner) {
        let attempted = lock::attempt(state, attempt, now)?;
        if matches!(attempted, Attempted::Granted { .. }) {
            leave(state, key.name(), *owner);
            // Nobody tells of an expiry. Whoever is next must learn of a lease that may end before it asks by itself.
            if attempt.lease < attempt.place.unwrap_or(WAITER_TIMEOUT) {
                tell_head(state, key, client);
            }
            return Ok(attempted);
        }
    } else if died {
        tell_head(state, key, client);
    }
    if let Some(place) = attempt.place {
        stand(state, key.name(), *owner, now.after(place));
    }
    let ttl = in_the_way(state, attempt, held, now);
    Ok(Attempted::Held { ttl })
}

/// How long others are in the way: the holder, or where there is none the first waiter, until it counts as dead. Who
/// stands further behind will have to wait longer than that.
fn in_the_way(state: &State, attempt: &Attempt, held: bool, now: Tick) -> Option<Duration> {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let places = state.queues.get(key.name());
    let waiter = |at: usize| places.and_then(|places| places.get(at)).copied();
    let left = match (held, waiter(0)) {
        (false, Some((_, dead_at))) => Some(dead_at.left(now)),
        _ => state.ttl(key.name(), now),
    };
    let next = waiter(usize::from(!held)).is_some_and(|(next, _)| next == *owner);
    let more = attempt.place.filter(|_| !next).unwrap_or_default();
    left.map(|left| left + more)
}

pub(super) fn release(
    state: &mut State,
    target: &Target,
    client: u64,
    now: Tick,
) -> Result<Released, Fault> {
    leave(state, target.resource.key.name(), target.owner);
    let ours = lock::is_held_by(state, target)?;
    if ours {
        state.remove(target.resource.key.name());
    }
    wake_head(state, &target.resource.key, client, now);
    Ok(match ours {
        true => Released::Freed { others_wait: false },
        false => Released::NotOurs,
    })
}

pub(super) fn force_release(
    state: &mut State,
    key: &Key,
    client: u64,
    now: Tick,
) -> Result<bool, Fault> {
    let freed = lock::remove(state, key)?;
    wake_head(state, key, client, now);
    Ok(freed)
}

/// Tells the first waiter, where nobody holds the lock.
fn wake_head(state: &mut State, key: &Key, client: u64, now: Tick) {
    drop_dead(state, key.name(), now);
    if !state.values.contains_key(key.name()) {
        tell_head(state, key, client);
    }
}

fn tell_head(state: &mut State, key: &Key, client: u64) {
    if let Some(head) = head(state, key.name()) {
        let topic = (Family::Lock, Arc::clone(key.name()), Some(head));
        state.publish_on(client, &topic);
    }
}

fn head(state: &State, name: &Name) -> Option<Owner> {
    state.queues.get(name)?.front().map(|(owner, _)| *owner)
}

/// Takes the last place, or keeps its own.
fn stand(state: &mut State, name: &Name, owner: Owner, dead_at: Tick) {
    let places = state.queues.entry(Arc::clone(name)).or_default();
    match places.iter_mut().find(|(other, _)| *other == owner) {
        Some(place) => place.1 = dead_at,
        None => places.push_back((owner, dead_at)),
    }
}

fn leave(state: &mut State, name: &Name, owner: Owner) {
    retain(state, name, |(other, _)| *other != owner);
}

/// Whether anyone was.
fn drop_dead(state: &mut State, name: &Name, now: Tick) -> bool {
    retain(state, name, |(_, dead_at)| *dead_at > now)
}

/// Keeps some of the places; whether any went.
fn retain(state: &mut State, name: &Name, keep: impl FnMut(&(Owner, Tick)) -> bool) -> bool {
    let Some(places) = state.queues.get_mut(name) else {
        return false;
    };
    let before = places.len();
    places.retain(keep);
    let after = places.len();
    if after == 0 {
        state.queues.remove(name);
    }
    after < before
}

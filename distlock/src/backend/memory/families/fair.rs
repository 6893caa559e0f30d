//! The fair lock in memory: the lock's hash of owners, and a queue of its waiters.
//!
//! A waiter keeps its place in the queue by repeating its attempt. One that has not done so for as long as its place is
//! kept counts as dead. Dead waiters are removed by the next verb on their key, wherever they are in the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::lock;
use crate::backend::memory::call::Call;
use crate::backend::memory::store::{Name, State};
use crate::backend::{Attempt, Attempted, Fault, Forced, Released, Seen, Target, Through};
use crate::clock::Tick;
use crate::config::WAITER_TIMEOUT;
use crate::resource::key::Key;
use crate::resource::kind::Family;
use crate::resource::owner::Owner;

/// The waiters in order of arrival, each with the time from which it counts as dead.
pub(crate) type Places = VecDeque<(Owner, Tick)>;

pub(crate) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    call: Call,
) -> Result<Attempted, Fault> {
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        return lock::attach(state, attempt, former, call.now);
    }
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let any_died = remove_dead(state, key.name(), call.now);
    let head = head(state, key.name());
    let is_held = state.values.contains_key(key.name());
    if is_held || head.is_none_or(|head| head == *owner) {
        let attempted = lock::attempt(state, attempt, call.now)?;
        if matches!(attempted, Attempted::Granted { .. }) {
            remove(state, key.name(), *owner);
            // No message is sent when a lease expires. The next waiter has to know of a lease that may end before its
            // own next attempt.
            if attempt.lease < attempt.queue_ttl.unwrap_or(WAITER_TIMEOUT) {
                notify_head(state, key, call);
            }
            return Ok(attempted);
        }
    // The lock is free, and nobody has notified the one that is first now.
    } else if any_died {
        notify_head(state, key, call);
    }
    if is_held && any_died {
        notify_head_of_a_near_end(state, key, call);
    }
    if let Some(queue_ttl) = attempt.queue_ttl {
        enqueue(state, key.name(), *owner, call.now.after(queue_ttl));
    }
    let ttl = blocked_for(state, attempt, is_held, call.now);
    Ok(lock::refusal(state, key, ttl))
}

/// How long others block: the holder until its lease ends, or without a holder the first waiter until it
/// counts as dead. A waiter further behind has to wait longer than that, so its answer is longer by the time for
/// which its place is kept.
fn blocked_for(state: &State, attempt: &Attempt, is_held: bool, now: Tick) -> Option<Duration> {
    let Target {
        resource, owner, ..
    } = &attempt.target;
    let key = &resource.key;
    let places = state.queues.get(key.name());
    let waiter = |at: usize| places.and_then(|places| places.get(at)).copied();
    let left = match (is_held, waiter(0)) {
        (false, Some((_, dead_at))) => Some(dead_at.left(now)),
        _ => state.ttl(key.name(), now),
    };
    let is_next = waiter(usize::from(!is_held)).is_some_and(|(next, _)| next == *owner);
    let more = attempt.queue_ttl.filter(|_| !is_next).unwrap_or_default();
    left.map(|left| left + more)
}

/// Ends a hold, or gives up a place in the queue.
pub(crate) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let was_next = head(state, key.name()) == Some(target.owner);
    remove(state, key.name(), target.owner);
    let is_ours = match lock::is_held_by(state, target) {
        // Under a value of another type nobody holds the lock.
        Err(Fault::WrongType(_)) => false,
        held => held?,
    };
    if is_ours {
        state.remove(key.name());
        notify_those_without_a_place(state, key, call);
    }
    notify_head_if_free(state, key, call);
    if was_next {
        notify_head_of_a_near_end(state, key, call);
    }
    Ok(if is_ours {
        // The one subscriber that matters, the first waiter, has been notified already.
        Released::Freed { others: 0 }
    } else {
        Released::NotOurs
    })
}

pub(crate) fn force_release(
    state: &mut State,
    key: &Key,
    seen: Option<&Seen>,
    call: Call,
) -> Result<Forced, Fault> {
    let freed = lock::remove(state, key, seen)?;
    if freed == Forced::Freed {
        notify_those_without_a_place(state, key, call);
    }
    notify_head_if_free(state, key, call);
    Ok(freed)
}

/// Notifies those that wait until the lock is free, and are not in its queue.
fn notify_those_without_a_place(state: &mut State, key: &Key, call: Call) {
    state.publish(call.client, Family::Lock, key);
}

fn notify_head_if_free(state: &mut State, key: &Key, call: Call) {
    remove_dead(state, key.name(), call.now);
    if !state.values.contains_key(key.name()) {
        notify_head(state, key, call);
    }
}

/// Notifies a waiter that was behind others and is the first one now: as long as others were before it, it was told of a later end of
/// the lease, and no message is sent when a lease expires.
fn notify_head_of_a_near_end(state: &mut State, key: &Key, call: Call) {
    let left = state.ttl(key.name(), call.now);
    if left.is_some_and(|left| left < WAITER_TIMEOUT) {
        notify_head(state, key, call);
    }
}

fn notify_head(state: &mut State, key: &Key, call: Call) {
    if let Some(head) = head(state, key.name()) {
        let topic = (Family::Lock, Arc::clone(key.name()), Some(head));
        state.publish_on(call.client, &topic);
    }
}

fn head(state: &State, name: &Name) -> Option<Owner> {
    state.queues.get(name)?.front().map(|(owner, _)| *owner)
}

/// Puts a waiter at the end of the queue. One that is queued already keeps its place, for longer.
fn enqueue(state: &mut State, name: &Name, owner: Owner, dead_at: Tick) {
    let places = state.queues.entry(Arc::clone(name)).or_default();
    match places.iter_mut().find(|(other, _)| *other == owner) {
        Some(place) => place.1 = dead_at,
        None => places.push_back((owner, dead_at)),
    }
}

fn remove(state: &mut State, name: &Name, owner: Owner) {
    retain(state, name, |(other, _)| *other != owner);
}

/// Removes the dead waiters, and answers whether there were any.
fn remove_dead(state: &mut State, name: &Name, now: Tick) -> bool {
    retain(state, name, |(_, dead_at)| *dead_at > now)
}

/// Removes the waiters that `keep` rejects, and answers whether there were any.
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

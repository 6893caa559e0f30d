//! The semaphore in memory: Redisson's `RSemaphore`, and a mark for each owner that has permits.

use super::Call;
use super::number::{self, Mark};
use super::store::State;
use crate::backend::{Attempt, Attempted, Fault, Released, SemaphoreChange, Target};
use crate::key::Key;
use crate::kind::Family;
use crate::owner::Owner;

pub(super) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    call: Call,
) -> Result<Attempted, Fault> {
    let (target, key) = (&attempt.target, &attempt.target.resource.key);
    let mark = number::mark(state, key, target.owner);
    if mark == Some(Mark::Taken) {
        return Ok(Attempted::Granted { token: None });
    }
    let free = number::get(state, key)?.unwrap_or(0);
    let wanted = i64::from(target.permits);
    // Any other mark says that the owner has ended: a late attempt of it takes nothing.
    if mark.is_some() || free < wanted {
        return Ok(Attempted::Held { ttl: None });
    }
    number::set(state, key, free - wanted);
    let until = call.now.after(attempt.lease);
    number::remember(state, key, target.owner, Mark::Taken, until);
    Ok(Attempted::Granted { token: None })
}

/// Ends an owner, and remembers that it has ended.
pub(super) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let mark = number::mark(state, key, target.owner);
    // Only for its error: an owner of another type of value must not be marked as ended.
    number::get(state, key)?;
    let mut others_wait = false;
    if mark == Some(Mark::Taken) && target.permits > 0 {
        let free = number::add(state, key, i64::from(target.permits))?;
        others_wait = free > 0 && state.publish(call.client, Family::Semaphore, key);
    }
    number::remember(state, key, target.owner, Mark::Ended, call.remember_until);
    Ok(match mark {
        Some(Mark::Taken | Mark::Ended) => Released::Freed { others_wait },
        _ => Released::NotOurs,
    })
}

pub(super) fn force_release(state: &mut State, key: &Key) -> Result<bool, Fault> {
    number::remove(state, key)
}

pub(super) fn adjust(
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
            number::once(state, key, request, call, |state| drain(state, key))
        }
    }
}

fn try_set(state: &mut State, key: &Key, permits: i64, call: Call) -> Result<i64, Fault> {
    if number::get(state, key)?.is_some() {
        return Ok(0);
    }
    number::set(state, key, permits);
    if permits > 0 {
        state.publish(call.client, Family::Semaphore, key);
    }
    Ok(1)
}

fn add(state: &mut State, key: &Key, permits: i64, call: Call) -> Result<i64, Fault> {
    let free = number::add(state, key, permits)?;
    if permits > 0 && free > 0 {
        state.publish(call.client, Family::Semaphore, key);
    }
    Ok(free)
}

fn drain(state: &mut State, key: &Key) -> Result<i64, Fault> {
    let Some(free) = number::get(state, key)? else {
        return Ok(0);
    };
    number::set(state, key, 0);
    Ok(free)
}

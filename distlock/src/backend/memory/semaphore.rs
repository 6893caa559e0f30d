//! The semaphore, in memory: Redisson's `RSemaphore`, and a mark for each owner that has permits.

use super::number::{self, Mark};
use super::store::State;
use crate::backend::{Attempt, Attempted, Change, Fault, Released, Target, unsupported};
use crate::clock::Tick;
use crate::kind::Family;

pub(super) fn attempt(state: &mut State, attempt: &Attempt, now: Tick) -> Result<Attempted, Fault> {
    let (target, refused) = (&attempt.target, Attempted::Held { ttl: None });
    let marked = number::marked(state, target);
    if marked == Some(Mark::Taken) {
        return Ok(Attempted::Granted { token: None });
    }
    let free = number::get(state, &target.resource.key)?.unwrap_or(0);
    let wanted = i64::from(target.permits);
    if marked.is_some() || free < wanted {
        return Ok(refused);
    }
    number::set(state, &target.resource.key, free - wanted);
    number::remember(state, target, Mark::Taken, now.after(attempt.lease));
    Ok(Attempted::Granted { token: None })
}

/// Ends an owner, and remembers that until then.
pub(super) fn release(
    state: &mut State,
    target: &Target,
    client: u64,
    until: Tick,
) -> Result<Released, Fault> {
    let marked = number::marked(state, target);
    number::get(state, &target.resource.key)?;
    let mut others_wait = false;
    if marked == Some(Mark::Taken) && target.permits > 0 {
        let free = number::add(state, &target.resource.key, i64::from(target.permits))?;
        others_wait = free > 0 && state.publish(client, Family::Semaphore, &target.resource.key);
    }
    number::remember(state, target, Mark::Ended, until);
    Ok(match marked {
        Some(Mark::Taken | Mark::Ended) => Released::Freed { others_wait },
        _ => Released::NotOurs,
    })
}

pub(super) fn adjust(
    state: &mut State,
    target: &Target,
    change: Change,
    client: u64,
    until: Tick,
) -> Result<i64, Fault> {
    let key = &target.resource.key;
    number::adjust(state, target, change, until, |state| {
        let free = number::get(state, key)?;
        let (answer, grown) = match (change, free) {
            (Change::TrySet(permits), None) => {
                number::set(state, key, i64::from(permits));
                (1, i64::from(permits))
            }
            (Change::TrySet(_), Some(_)) | (Change::Drain, None) => (0, 0),
            (Change::Add(permits), _) => {
                let free = number::add(state, key, i64::from(permits))?;
                (free, if permits > 0 { free } else { 0 })
            }
            (Change::Drain, Some(free)) => {
                number::set(state, key, 0);
                (free, 0)
            }
            _ => return Err(unsupported(target.resource.kind, "change so")),
        };
        if grown > 0 {
            state.publish(client, Family::Semaphore, key);
        }
        Ok(answer)
    })
}

//! The permit-expirable semaphore in memory: the number of free permits, and the acquired ones with their ends.
//!
//! Redisson says of a permit that somebody has that it is "acquired". A permit whose lease has ended counts as free
//! from that moment, but moves back to the free ones only when the next verb that changes the semaphore takes it back.

mod permits;

pub(crate) use self::permits::Permits;
use crate::backend::memory::call::Call;
use crate::backend::memory::families::number::{self, Mark};
use crate::backend::memory::store::{State, Value};
use crate::backend::{
    Attempt, Attempted, Fault, Forced, Inspected, PermitChange, Released, Renewal, Seen, Target,
    Through,
};
use crate::clock::Tick;
use crate::config::{MAX_SUM, MOST_HOLDERS_TOLD};
use crate::resource::key::Key;
use crate::resource::kind::Family;
use crate::resource::owner::Owner;
use crate::resource::permit_id::PermitId;

fn permits<'a>(state: &'a mut State, key: &Key) -> Result<Option<&'a mut Permits>, Fault> {
    match state
        .values
        .get_mut(key.name())
        .map(|entry| &mut entry.value)
    {
        Some(Value::Permits(permits)) => Ok(Some(permits)),
        Some(_) => Err(Fault::WrongType(None)),
        None => Ok(None),
    }
}

pub(crate) fn attempt(
    state: &mut State,
    attempt: &Attempt,
    call: Call,
) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let now = call.now;
    let key = &target.resource.key;
    let has_ended = number::mark(state, key, target.owner) == Some(Mark::Ended);
    if let Some(former) = attempt.through.as_deref().and_then(Through::detached) {
        return attach(state, attempt, former.owner, now, has_ended);
    }
    let Some(permits) = permits(state, key)? else {
        return Ok(Attempted::Unset);
    };
    let any_swept = permits.sweep(now);
    let is_granted = !has_ended && permits.take(target, now.after(attempt.lease));
    let free = permits.free;
    let next_end = permits.next_end();
    let acquired = permits.number_acquired().unsigned_abs();
    if is_granted {
        used_until(state, key, now.after(attempt.lease), now);
    }
    // No message was sent when their leases ended.
    if any_swept {
        publish_free(state, key, free, call);
    }
    Ok(if is_granted {
        Attempted::Granted { token: None }
    } else {
        let ttl = next_end.map(|end| end.left(now));
        Attempted::held_by_many(ttl, acquired, true)
    })
}

/// Takes the place of another owner, if that one still has all its permits.
fn attach(
    state: &mut State,
    attempt: &Attempt,
    former: Owner,
    now: Tick,
    has_ended: bool,
) -> Result<Attempted, Fault> {
    let target = &attempt.target;
    let refused = Ok(Attempted::held(None));
    let Some(permits) = permits(state, &target.resource.key)? else {
        return refused;
    };
    // Checked before the ids are made: the number that is asked for has no limit.
    if has_ended || i64::from(target.permits) > permits.number_acquired() {
        return refused;
    }
    let ids = |owner| PermitId::all_of(owner, target.permits);
    let is_there = |id: &PermitId| permits.acquired.contains_key(id);
    let is_alive = |id: PermitId| permits.acquired.get(&id).is_some_and(|end| *end > now);
    let end = now.after(attempt.lease);
    if ids(target.owner).all(is_alive) {
        permits.extend(ids(target.owner).collect(), end);
    } else if ids(target.owner).any(|id| is_there(&id)) || !ids(former).all(is_alive) {
        // With a part of its own permits it would get more than it gives.
        return refused;
    } else {
        for (id, former) in ids(target.owner).zip(ids(former)) {
            let before = permits.acquired.get(&former).copied().unwrap_or(end);
            permits.remove(former);
            permits.insert(id, before.max(end));
        }
    }
    used_until(state, &target.resource.key, end, now);
    Ok(Attempted::Granted { token: None })
}

/// Notifies the subscribers if permits are free, and answers whether other clients are among them. Nothing is published
/// otherwise, as over Redis, where Redisson's subscribers cannot parse a negative number.
fn publish_free(state: &mut State, key: &Key, free: i64, call: Call) -> u32 {
    match free {
        ..=0 => 0,
        1.. => state.publish(call.client, Family::Permit, key),
    }
}

pub(crate) fn renew(state: &mut State, renewal: &Renewal, now: Tick) -> bool {
    let target = &renewal.target;
    // A value of another type means that the owner's permits are gone: one lost hold must not fail the whole batch.
    let Ok(Some(permits)) = permits(state, &target.resource.key) else {
        return false;
    };
    // Checked before the ids are made: the number that is asked for has no limit.
    if i64::from(target.permits) > permits.number_acquired() {
        return false;
    }
    let ids: Vec<_> = PermitId::all_of(target.owner, target.permits).collect();
    let is_acquired = |id: &PermitId| permits.acquired.get(id).is_some_and(|end| *end > now);
    let has_all = ids.iter().all(is_acquired);
    if has_all {
        let end = now.after(renewal.lease);
        permits.extend(ids, end);
        used_until(state, &target.resource.key, end, now);
    }
    has_all
}

pub(crate) fn release(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let key = &target.resource.key;
    let Some(permits) = permits(state, key)? else {
        return Ok(Released::NotOurs);
    };
    let any_swept = permits.sweep(call.now);
    // An attempt for a very large number was never granted, so its ids are not worth a search.
    let worth_a_search = permits.number_acquired().max(1000);
    let mut returned = 0;
    if i64::from(target.permits) <= worth_a_search {
        for id in PermitId::all_of(target.owner, target.permits) {
            returned += u32::from(permits.take_back(id));
        }
    }
    let free = permits.free;
    if returned > 0 {
        used(state, key, false, call.now);
    }
    let others = if any_swept || returned > 0 {
        publish_free(state, key, free, call)
    } else {
        0
    };
    Ok(if returned == target.permits {
        Released::Freed { others }
    } else {
        Released::NotOurs
    })
}

/// Releases, and remembers the owner: a late attempt of it takes nothing.
pub(crate) fn withdraw(state: &mut State, target: &Target, call: Call) -> Result<Released, Fault> {
    let released = release(state, target, call)?;
    let key = &target.resource.key;
    number::remember(state, key, target.owner, Mark::Ended, call.ended_until());
    Ok(released)
}

pub(crate) fn force_release(
    state: &mut State,
    key: &Key,
    seen: Option<&Seen>,
    now: Tick,
) -> Result<Forced, Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok(Forced::WasFree);
    };
    let acquired = permits.ends.iter().filter(|(end, _)| *end > now);
    if seen.is_some_and(|seen| !seen.are(acquired.map(|(_, id)| id.to_string()))) {
        return Ok(Forced::Unseen);
    }
    Ok(Forced::freed(state.remove(key.name())))
}

pub(crate) fn inspect(state: &mut State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok(Inspected::default());
    };
    let mut acquired = permits.ends.iter().filter(|(end, _)| *end > now).peekable();
    Ok(Inspected {
        ttl: acquired.peek().map(|(end, _)| end.left(now)),
        holders: acquired
            .take(MOST_HOLDERS_TOLD)
            .map(|(_, id)| (id.to_string().into_bytes(), 1))
            .collect(),
    })
}

pub(crate) fn adjust(
    state: &mut State,
    key: &Key,
    request: Owner,
    change: PermitChange,
    call: Call,
) -> Result<i64, Fault> {
    let now = call.now;
    match change {
        PermitChange::Count => Ok(numbers(state, key, now)?.0),
        PermitChange::AcquiredPermits => Ok(numbers(state, key, now)?.1),
        PermitChange::TotalPermits => numbers(state, key, now).map(|(free, out)| free + out),
        PermitChange::RemainingLease(id) => remaining_lease(state, key, id, now),
        PermitChange::TrySet(number) => once(state, key, request, call, |state| {
            try_set(state, key, number.into(), now)
        }),
        PermitChange::SetPermits(number) => once(state, key, request, call, |state| {
            set(state, key, number.into(), now)
        }),
        PermitChange::Add(number) => once(state, key, request, call, |state| {
            add(state, key, number.into(), now)
        }),
        PermitChange::ReleasePermit(id) => once(state, key, request, call, |state| {
            release_permit(state, key, id, now)
        }),
        PermitChange::UpdateLease(id, lease) => once(state, key, request, call, |state| {
            update_lease(state, key, id, now.after(lease), now)
        }),
    }
}

/// The numbers of free and of acquired permits, as if what has expired had been taken back.
fn numbers(state: &mut State, key: &Key, now: Tick) -> Result<(i64, i64), Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok((0, 0));
    };
    let expired = permits.ends.iter().take_while(|(end, _)| *end <= now);
    let expired = expired.count() as i64;
    Ok((permits.free + expired, permits.number_acquired() - expired))
}

/// The answer for a permit that is not out, as over Redis.
const NOT_ACQUIRED: i64 = -2;

fn remaining_lease(state: &mut State, key: &Key, id: PermitId, now: Tick) -> Result<i64, Fault> {
    let end = permits(state, key)?.and_then(|permits| permits.acquired.get(&id).copied());
    let left = end.map(|end| end.left(now)).filter(|left| !left.is_zero());
    Ok(left.map_or(NOT_ACQUIRED, |left| left.as_millis() as i64))
}

/// Carries out a change once for each request. `change` answers also whether waiters have to know of it.
fn once(
    state: &mut State,
    key: &Key,
    request: Owner,
    call: Call,
    change: impl FnOnce(&mut State) -> Result<(i64, bool), Fault>,
) -> Result<i64, Fault> {
    permits(state, key)?;
    number::once(state, key, request, call, |state| {
        let (answer, concerns_waiters) = change(state)?;
        if concerns_waiters {
            state.publish(call.client, Family::Permit, key);
        }
        Ok(answer)
    })
}

fn create(state: &mut State, key: &Key, free: i64, now: Tick) {
    let permits = Permits {
        free,
        ..Permits::default()
    };
    state.insert(key.name(), Value::Permits(permits), Tick::NEVER);
    used(state, key, true, now);
}

/// Moves the end of a semaphore after a use.
fn used(state: &mut State, key: &Key, is_new: bool, now: Tick) {
    number::used(state, key, is_new, None, now);
}

/// The same after one of its permits was given a lease until `end`. The semaphore lasts at least as long as the permit, also if
/// the handle that uses it would leave its end as it is.
fn used_until(state: &mut State, key: &Key, end: Tick, now: Tick) {
    used(state, key, false, now);
    state.expire_at_least(key.name(), end);
}

fn try_set(state: &mut State, key: &Key, number: i64, now: Tick) -> Result<(i64, bool), Fault> {
    if permits(state, key)?.is_some() {
        used(state, key, false, now);
        return Ok((0, false));
    }
    create(state, key, number, now);
    Ok((1, number > 0))
}

fn set(state: &mut State, key: &Key, number: i64, now: Tick) -> Result<(i64, bool), Fault> {
    let Some(permits) = permits(state, key)? else {
        create(state, key, number, now);
        return Ok((number, number > 0));
    };
    let changed = permits.change(now, |permits| {
        permits.free = number - permits.number_acquired();
        permits.free
    });
    used(state, key, false, now);
    Ok(changed)
}

fn add(state: &mut State, key: &Key, number: i64, now: Tick) -> Result<(i64, bool), Fault> {
    let Some(permits) = permits(state, key)? else {
        if number.unsigned_abs() <= MAX_SUM {
            create(state, key, number, now);
        }
        return Ok((number, number > 0));
    };
    let (sum, has_grown) = permits.change(now, |permits| {
        let sum = permits.free + number;
        // A sum beyond 32 bits changes nothing.
        if sum.unsigned_abs() <= MAX_SUM {
            permits.free = sum;
        }
        sum
    });
    if sum.unsigned_abs() <= MAX_SUM {
        used(state, key, false, now);
    }
    Ok((sum, has_grown))
}

fn release_permit(
    state: &mut State,
    key: &Key,
    id: PermitId,
    now: Tick,
) -> Result<(i64, bool), Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok((0, false));
    };
    let (returned, has_grown) = permits.change(now, |permits| i64::from(permits.take_back(id)));
    if returned > 0 {
        used(state, key, false, now);
    }
    Ok((returned, has_grown))
}

fn update_lease(
    state: &mut State,
    key: &Key,
    id: PermitId,
    new_end: Tick,
    now: Tick,
) -> Result<(i64, bool), Fault> {
    let Some(permits) = permits(state, key)? else {
        return Ok((0, false));
    };
    let mut ends_earlier = false;
    let (answer, has_grown) = permits.change(now, |permits| {
        let Some(end) = permits.acquired.get(&id).copied() else {
            return 0;
        };
        ends_earlier = new_end < end;
        permits.insert(id, new_end);
        1
    });
    if answer > 0 {
        used_until(state, key, new_end, now);
    }
    // A waiter that sleeps until the next permit ends might sleep too long now.
    Ok((answer, ends_earlier || has_grown))
}

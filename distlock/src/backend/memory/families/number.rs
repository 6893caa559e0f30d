//! What semaphores and latches share in memory: a number under a key, and a mark for each request to change it. Expirable
//! semaphores mark their requests here as well.
//!
//! # Invariants
//! 1. A change and the mark of its request are stored in one step, so a request that is sent twice takes effect once.
//! 2. A change of a number leaves the time at which its key expires as it was. Only [`used`] moves it.

use std::sync::Arc;

use crate::backend::memory::call::Call;
use crate::backend::memory::store::{Name, State, Value};
use crate::backend::{Fault, Forced, Inspected, Seen, cause};
use crate::clock::Tick;
use crate::resource::key::Key;
use crate::resource::owner::Owner;

/// What is remembered of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The owner was withdrawn: a late attempt of it takes nothing.
    Ended,
    /// The request was answered with this number.
    Answered(i64),
}

/// The number under a key, if there is one.
pub(crate) fn get(state: &State, key: &Key) -> Result<Option<i64>, Fault> {
    match state.values.get(key.name()).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(_) => Err(Fault::WrongType(None)),
    }
}

/// The number under a key, 0 when there is none.
pub(crate) fn count(state: &State, key: &Key) -> Result<i64, Fault> {
    Ok(get(state, key)?.unwrap_or(0))
}

/// Sets the number under a key. A new key never expires; an existing one expires when it would have.
pub(crate) fn set(state: &mut State, key: &Key, number: i64) {
    match state.values.get_mut(key.name()) {
        Some(entry) => entry.value = Value::Number(number),
        None => state.insert(key.name(), Value::Number(number), Tick::NEVER),
    }
}

/// Moves the end of a number after a use, and of what is kept `beside` it, never to an earlier time. A number that was there
/// without an end keeps none.
pub(crate) fn used(state: &mut State, key: &Key, is_new: bool, beside: Option<&Name>, now: Tick) {
    let stays = key.expires_after();
    if stays.is_zero() {
        return;
    }
    let end = now.after(stays);
    let before = state.expiry(key.name());
    let has_no_end = before == Tick::NEVER;
    if before >= end && !(is_new && has_no_end) {
        return;
    }
    for name in [Some(key.name()), beside].into_iter().flatten() {
        state.expire_at(name, end);
    }
}

/// Adds to the number under a key, and answers the sum.
pub(crate) fn add(state: &mut State, key: &Key, change: i64) -> Result<i64, Fault> {
    let sum = count(state, key)?.checked_add(change);
    let sum = sum.ok_or_else(|| Fault::Protocol(cause("the number would overflow")))?;
    set(state, key, sum);
    Ok(sum)
}

/// The name under which the mark of a request is stored: a key beside the number's, as over Redis.
fn mark_name(key: &Key, request: Owner) -> Name {
    format!("{{{}}}:{request}:request", key.name()).into()
}

/// What is remembered of a request, if anything.
pub(crate) fn mark(state: &State, key: &Key, request: Owner) -> Option<Mark> {
    match state.values.get(&mark_name(key, request))?.value {
        Value::Mark(mark) => Some(mark),
        _ => None,
    }
}

pub(crate) fn remember(state: &mut State, key: &Key, request: Owner, mark: Mark, until: Tick) {
    state.insert(&mark_name(key, request), Value::Mark(mark), until);
}

/// Removes what is remembered of a request.
pub(crate) fn answered(state: &mut State, key: &Key, request: Owner) {
    state.remove(&mark_name(key, request));
}

/// Carries out a change, unless this request was answered before: then the answer is the same, and nothing changes.
pub(crate) fn once(
    state: &mut State,
    key: &Key,
    request: Owner,
    call: Call,
    change: impl FnOnce(&mut State) -> Result<i64, Fault>,
) -> Result<i64, Fault> {
    if let Some(Mark::Answered(answer)) = mark(state, key, request) {
        return Ok(answer);
    }
    let answer = change(state)?;
    let mark = Mark::Answered(answer);
    remember(state, key, request, mark, call.remember_until());
    Ok(answer)
}

/// Removes the number under a key. A number that differs from the one that was seen stays. An expirable semaphore counts as a number
/// while nobody has a permit of it.
pub(crate) fn remove(state: &mut State, key: &Key, seen: Option<&Seen>) -> Result<Forced, Fault> {
    let number = match state.values.get(key.name()).map(|entry| &entry.value) {
        Some(Value::Permits(permits)) if permits.number_acquired() == 0 => Some(permits.free()),
        _ => get(state, key)?,
    };
    let Some(number) = number else {
        return Ok(Forced::WasFree);
    };
    let seen = seen.and_then(|seen| seen.number);
    if seen.is_some_and(|seen| seen != number) {
        return Ok(Forced::Unseen);
    }
    Ok(Forced::freed(state.remove(key.name())))
}

/// How long the number stays. Its holders are unknown.
pub(crate) fn inspect(state: &State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    get(state, key)?;
    Ok(Inspected {
        holders: Vec::new(),
        ttl: state.ttl(&Arc::clone(key.name()), now),
    })
}

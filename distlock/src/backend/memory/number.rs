//! What semaphores and latches have in common, in memory: a number under one key, and the marks of those who changed it.
//!
//! # Invariants
//! 1. What a request changes, and the mark that says so, change in one step: sent twice it counts once.
//! 2. A number keeps the time to live that its key has.

use std::sync::Arc;

use super::store::{Name, State, Value};
use crate::backend::{Change, Fault, Inspected, Target, cause};
use crate::clock::Tick;
use crate::key::Key;

/// What is remembered of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The owner has taken its permits.
    Taken,
    /// The owner has ended: it takes nothing any more.
    Ended,
    /// The request was answered so.
    Answered(i64),
}

/// The number under a key, if there is one.
pub(super) fn get(state: &State, key: &Key) -> Result<Option<i64>, Fault> {
    match state.values.get(key.name()).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(_) => Err(Fault::WrongType),
    }
}

/// Sets the number under a key, which keeps its end where it has one.
pub(super) fn set(state: &mut State, key: &Key, number: i64) {
    match state.values.get_mut(key.name()) {
        Some(entry) => entry.value = Value::Number(number),
        None => state.insert(key.name(), Value::Number(number), Tick::NEVER),
    }
}

/// Adds to the number under a key: what it is then.
pub(super) fn add(state: &mut State, key: &Key, change: i64) -> Result<i64, Fault> {
    let sum = get(state, key)?.unwrap_or(0).checked_add(change);
    let sum = sum.ok_or_else(|| Fault::Protocol(cause("the number would overflow")))?;
    set(state, key, sum);
    Ok(sum)
}

fn mark_of(target: &Target) -> Name {
    // As over Redis: a key of its own beside the number's.
    format!(
        "{{{}}}:{}:request",
        target.resource.key.name(),
        target.owner
    )
    .into()
}

pub(super) fn marked(state: &State, target: &Target) -> Option<Mark> {
    match state.values.get(&mark_of(target))?.value {
        Value::Mark(mark) => Some(mark),
        _ => None,
    }
}

pub(super) fn remember(state: &mut State, target: &Target, mark: Mark, until: Tick) {
    state.insert(&mark_of(target), Value::Mark(mark), until);
}

/// Says what the number is, or has a change carried out by `make`, unless this request was answered before.
pub(super) fn adjust(
    state: &mut State,
    target: &Target,
    change: Change,
    until: Tick,
    make: impl FnOnce(&mut State) -> Result<i64, Fault>,
) -> Result<i64, Fault> {
    if change == Change::Count {
        return Ok(get(state, &target.resource.key)?.unwrap_or(0));
    }
    if let Some(Mark::Answered(answer)) = marked(state, target) {
        return Ok(answer);
    }
    let answer = make(state)?;
    remember(state, target, Mark::Answered(answer), until);
    Ok(answer)
}

pub(super) fn delete(state: &mut State, key: &Key) -> Result<bool, Fault> {
    Ok(get(state, key)?.is_some() && state.remove(key.name()))
}

pub(super) fn inspect(state: &State, key: &Key, now: Tick) -> Result<Inspected, Fault> {
    get(state, key)?;
    Ok(Inspected {
        holders: Vec::new(),
        ttl: state.ttl(&Arc::clone(key.name()), now),
    })
}

//! The count-down latch in memory: Redisson's `RCountDownLatch`.

use super::store::State;
use super::{Call, number};
use crate::backend::{Fault, LatchChange};
use crate::key::Key;
use crate::kind::Family;
use crate::owner::Owner;

pub(super) fn adjust(
    state: &mut State,
    key: &Key,
    request: Owner,
    change: LatchChange,
    call: Call,
) -> Result<i64, Fault> {
    match change {
        LatchChange::Count => number::count(state, key),
        LatchChange::TrySet(count) => number::once(state, key, request, call, |state| {
            try_set(state, key, count.into(), call)
        }),
        LatchChange::CountDown => number::once(state, key, request, call, |state| {
            count_down(state, key, call)
        }),
    }
}

fn try_set(state: &mut State, key: &Key, count: i64, call: Call) -> Result<i64, Fault> {
    if number::get(state, key)?.is_some() {
        return Ok(0);
    }
    number::set(state, key, count);
    state.publish(call.client, Family::Latch, key);
    Ok(1)
}

/// Counts down by one. At 0 the latch is removed and its waiters are notified.
fn count_down(state: &mut State, key: &Key, call: Call) -> Result<i64, Fault> {
    let count = number::count(state, key)?;
    if count > 1 {
        number::set(state, key, count - 1);
        return Ok(count - 1);
    }
    state.remove(key.name());
    // A latch that was set to 0 is removed as well, but nobody waits for it.
    if count == 1 {
        state.publish(call.client, Family::Latch, key);
    }
    Ok(0)
}

pub(super) fn force_release(state: &mut State, key: &Key, call: Call) -> Result<bool, Fault> {
    let removed = number::remove(state, key)?;
    if removed {
        state.publish(call.client, Family::Latch, key);
    }
    Ok(removed)
}

//! The count-down latch in memory: Redisson's `RCountDownLatch`.

use std::sync::Arc;

use super::number;
use crate::backend::memory::call::Call;
use crate::backend::memory::store::{Name, State, Value};
use crate::backend::{Fault, Forced, LatchChange, LatchSeen, Seen};
use crate::clock::Tick;
use crate::resource::key::Key;
use crate::resource::kind::Family;
use crate::resource::owner::Owner;

pub(crate) fn adjust(
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

/// The name under which it is stored which opening of a latch was the last: a key beside the number's, as over Redis.
fn opened_name(key: &Key) -> Name {
    format!("{{{}}}:distlock_opened", key.name()).into()
}

/// What a waiter sees, but for the run of the server.
pub(crate) fn seen(state: &State, key: &Key, now: Tick) -> Result<LatchSeen, Fault> {
    let opened = state.values.get(&opened_name(key));
    let opened = opened.and_then(|entry| match &entry.value {
        Value::Opened(number) => Some(Arc::from(number.to_string())),
        _ => None,
    });
    Ok(LatchSeen {
        count: number::get(state, key)?,
        opened,
        run: None,
        ttl: state.ttl(key.name(), now),
    })
}

/// The latch has gone, and its waiters may pass. A waiter that hears no message finds a mark of it for a while.
fn open(state: &mut State, key: &Key, call: Call) {
    state.openings += 1;
    let opening = Value::Opened(state.openings);
    state.insert(&opened_name(key), opening, call.opened_until());
    state.publish(call.client, Family::Latch, key);
}

fn try_set(state: &mut State, key: &Key, count: i64, call: Call) -> Result<i64, Fault> {
    if number::get(state, key)?.is_some() {
        return Ok(0);
    }
    // Otherwise a waiter of the new latch would find the mark of the former one, and pass.
    state.remove(&opened_name(key));
    number::set(state, key, count);
    number::used(state, key, true, None, call.now);
    state.publish(call.client, Family::Latch, key);
    Ok(1)
}

/// Counts down by one. At 0 the latch is removed and its waiters are notified.
fn count_down(state: &mut State, key: &Key, call: Call) -> Result<i64, Fault> {
    let count = number::count(state, key)?;
    if count > 1 {
        number::set(state, key, count - 1);
        number::used(state, key, false, None, call.now);
        return Ok(count - 1);
    }
    state.remove(key.name());
    // A latch that was set to 0 is removed as well, but nobody waits for it.
    if count == 1 {
        open(state, key, call);
    }
    Ok(0)
}

pub(crate) fn force_release(
    state: &mut State,
    key: &Key,
    seen: Option<&Seen>,
    call: Call,
) -> Result<Forced, Fault> {
    let removed = number::remove(state, key, seen)?;
    if removed == Forced::Freed {
        open(state, key, call);
    }
    Ok(removed)
}

//! The count-down latch, in memory: Redisson's `RCountDownLatch`.

use super::number;
use super::store::State;
use crate::backend::{Change, Fault, Target, unsupported};
use crate::clock::Tick;
use crate::key::Key;
use crate::kind::Family;

pub(super) fn adjust(
    state: &mut State,
    target: &Target,
    change: Change,
    client: u64,
    until: Tick,
) -> Result<i64, Fault> {
    let key = &target.resource.key;
    number::adjust(state, target, change, until, |state| {
        match (change, number::get(state, key)?) {
            (Change::TrySet(count), None) => {
                number::set(state, key, i64::from(count));
                state.publish(client, Family::Latch, key);
                Ok(1)
            }
            (Change::TrySet(_), Some(_)) | (Change::CountDown, None) => Ok(0),
            (Change::CountDown, Some(count)) => {
                count_down(state, key, count, client);
                Ok((count - 1).max(0))
            }
            _ => Err(unsupported(target.resource.kind, "change so")),
        }
    })
}

/// At 0 the latch goes, and who waits is told; one that was set to 0 goes unheard.
fn count_down(state: &mut State, key: &Key, count: i64, client: u64) {
    if count > 1 {
        return number::set(state, key, count - 1);
    }
    state.remove(key.name());
    if count == 1 {
        state.publish(client, Family::Latch, key);
    }
}

pub(super) fn delete(state: &mut State, key: &Key, client: u64) -> Result<bool, Fault> {
    let deleted = number::delete(state, key)?;
    if deleted {
        state.publish(client, Family::Latch, key);
    }
    Ok(deleted)
}

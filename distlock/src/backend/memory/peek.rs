//! What a waiter sees of the key that it waits for.

use super::store::{State, Value};
use crate::backend::{Peeked, Target};
use crate::clock::Tick;
use crate::resource::kind::{Family, Kind};

pub(super) fn peek(state: &State, target: &Target, now: Tick) -> Peeked {
    let name = target.resource.key.name();
    let value = state.values.get(name).map(|entry| &entry.value);
    let wanted = i64::from(target.permits);
    let is_open = match (target.resource.kind.family(), value) {
        (Family::ReadWrite, Some(Value::ReadWrite(holders))) => {
            target.resource.kind == Kind::Read && !holders.has_writer()
        }
        (Family::Lock | Family::ReadWrite, value) => {
            // A value of another type is for the attempt to report.
            !matches!(value, Some(Value::Lock(_) | Value::ReadWrite(_)))
        }
        (Family::Latch, Some(Value::Number(count))) => *count <= 0,
        (_, Some(Value::Number(free))) => *free >= wanted,
        (_, Some(Value::Permits(permits))) => permits.free_at(now) >= wanted,
        // A number that is gone, and a value of another type, are for the attempt to report.
        (_, _) => true,
    };
    let ttl = match target.resource.kind.family() {
        Family::Lock | Family::ReadWrite => state.ttl(name, now),
        // As over Redis, where a look at a number tells no end.
        _ => None,
    };
    let count = match (target.resource.kind.family(), value) {
        (Family::Latch, Some(Value::Number(count))) if !is_open => Some(*count),
        _ => None,
    };
    Peeked {
        is_open,
        ttl,
        count,
    }
}

//! What the answers of the scripts mean.

mod errors;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

pub(crate) use self::errors::{
    Elsewhere, breaks_connection, cause_of_refusal, elsewhere, fault, is_about_the_command,
    is_denial_of_this, is_loading, is_noscript, is_unknown_refusal, lacks_the_others,
};
use crate::backend::{
    Attempted, AttemptedAll, Fault, Forced, Inspected, LatchSeen, Peeked, Released, Target, cause,
};
use crate::resource::kind::Family;
use crate::resource::owner::Owner;
use crate::resource::permit_id::PermitId;

/// A duration in whole milliseconds, rounded up: a lease must not end in the server before it ends in the client.
pub(crate) fn millis(lease: Duration) -> u64 {
    let millis = lease.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// What PTTL answers for a key that exists; `None` if the key never expires.
pub(crate) fn ttl(millis: i64) -> Option<Duration> {
    // A negative number says that there is no end.
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// The parts of an array. A value of another type has none.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) => parts,
        _ => &[],
    }
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(bytes(value)?).ok()
}

fn parsed<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The index of one of `wanted` keys, which the server counts from 1. It is input: one that is too high must not be used.
fn index(position: &Value, wanted: usize) -> Option<usize> {
    let Value::Int(position) = position else {
        return None;
    };
    let at = usize::try_from(*position).ok()?.checked_sub(1)?;
    (at < wanted).then_some(at)
}

/// Nil is a grant, a text is a grant with that fencing token, and a number is a refusal, or an array if a holder is named.
/// Tokens are texts because Lua would lose the last digits of such numbers.
pub(crate) fn attempted(value: Value) -> Result<Attempted, Fault> {
    let attempted = match &value {
        Value::Nil => Some(Attempted::Granted { token: None }),
        Value::Int(left) => Some(Attempted::held(ttl(*left))),
        Value::Array(refusal) => held_by(refusal),
        Value::BulkString(text) => {
            parsed(text).map(|token| Attempted::Granted { token: Some(token) })
        }
        _ => None,
    };
    attempted.ok_or_else(|| unexpected(&value))
}

/// A refusal that names a holder: for how long, the name, and how many others there are.
fn held_by(refusal: &[Value]) -> Option<Attempted> {
    let [
        Value::Int(left),
        Value::BulkString(name),
        Value::Int(others),
    ] = refusal
    else {
        return None;
    };
    let others = usize::try_from(*others).ok()?;
    Some(match Owner::of_text(name) {
        Some(owner) => Attempted::held_by(ttl(*left), owner, others),
        // A key that stays taken without a holder, or a name that no library of locks gives.
        None => Attempted::held(ttl(*left)),
    })
}

/// Reads the reply to an attempt at permits. It differs from what [`attempted`] reads in two ways: -2 says that there is no
/// semaphore, and a refusal counts the holders and names none.
pub(crate) fn attempted_permits(value: Value, are_permits: bool) -> Result<Attempted, Fault> {
    match (&value, parts(&value)) {
        (Value::Nil, _) => Ok(Attempted::Granted { token: None }),
        (Value::Int(-2), _) => Ok(Attempted::Unset),
        (_, [Value::Int(left), Value::Int(others @ 0..)]) => {
            let others = others.unsigned_abs();
            Ok(Attempted::held_by_many(ttl(*left), others, are_permits))
        }
        _ => Err(unexpected(&value)),
    }
}

/// Nil is a grant. Otherwise the position of a key that another owner holds, and its refusal.
pub(crate) fn attempted_all(value: Value, wanted: usize) -> Result<AttemptedAll, Fault> {
    if value == Value::Nil {
        return Ok(AttemptedAll::granted());
    }
    let refused = || {
        let (position, refusal) = parts(&value).split_first()?;
        let attempted = match refusal {
            [Value::Int(left)] => Attempted::held(ttl(*left)),
            named => held_by(named)?,
        };
        let at = index(position, wanted)?;
        Some(AttemptedAll { at, attempted })
    };
    refused().ok_or_else(|| unexpected(&value))
}

/// The index of a key with a value of another type, which the attempt on several keys has met.
pub(crate) fn of_another_type(value: &Value, wanted: usize) -> Option<usize> {
    match parts(value) {
        [position] => index(position, wanted),
        _ => None,
    }
}

/// An array with one value for each of `wanted` keys.
pub(crate) fn each(value: Value, wanted: usize) -> Result<Vec<Value>, Fault> {
    match value {
        // A shorter array would leave a caller without its answer.
        Value::Array(values) if values.len() == wanted => Ok(values),
        other => Err(unexpected(&other)),
    }
}

/// The number of subscribers that were notified, or a negative number if the owner held nothing. `own` counts those of
/// this client; it takes a mutex, so it is called only if there are any subscribers.
pub(crate) fn released(value: Value, own: impl FnOnce() -> i64) -> Result<Released, Fault> {
    match value {
        Value::Int(notified @ 0..) => Ok(Released::Freed {
            others: match notified {
                0 => 0,
                // Negative if the subscriptions of this client have changed between the two counts.
                notified => (notified - own()).try_into().unwrap_or(0),
            },
        }),
        Value::Int(_) => Ok(Released::NotOurs),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn forced(value: Value) -> Result<Forced, Fault> {
    match value {
        Value::Int(-1) => Ok(Forced::Unseen),
        Value::Int(freed) => Ok(Forced::freed(freed == 1)),
        other => Err(unexpected(&other)),
    }
}

/// Whether each of `wanted` holds is still its owner's. The server says how many there are, and which are not.
pub(crate) fn renewed(value: Value, wanted: usize) -> Result<Vec<bool>, Fault> {
    let ours = || {
        let (Value::Int(many), lost) = parts(&value).split_first()? else {
            return None;
        };
        let mut ours = vec![true; wanted];
        for position in lost {
            ours[index(position, wanted)?] = false;
        }
        (usize::try_from(*many) == Ok(wanted)).then_some(ours)
    };
    ours().ok_or_else(|| unexpected(&value))
}

/// One integer for each target: -2 is open. Otherwise it is what is left of a lease, or the count of a latch.
pub(crate) fn looked(value: Value, batch: &[Target]) -> Result<Vec<Peeked>, Fault> {
    let look = |(value, target): (Value, &Target)| match value {
        Value::Int(left @ -2..) => {
            let is_latch = target.resource.kind.family() == Family::Latch;
            Ok(Peeked {
                is_open: left == -2,
                // For a latch the number is its count, and not a time.
                ttl: ttl(left).filter(|_| !is_latch),
                count: (is_latch && left >= 0).then_some(left),
            })
        }
        other => Err(unexpected(&other)),
    };
    let values = each(value, batch.len())?;
    values.into_iter().zip(batch).map(look).collect()
}

/// What is left of a lease, and holders of two values each.
pub(crate) fn inspected(value: Value) -> Result<Inspected, Fault> {
    inspected_as(value, 2, |pair| match pair {
        [Value::BulkString(owner), Value::BulkString(count)] => match parsed(count) {
            Some(count) => Some(Some((owner.clone(), count))),
            // The mode of a read/write lock is a field of the same hash.
            None => (owner == b"mode").then_some(None),
        },
        _ => None,
    })
}

/// What is left of a lease, and the ids of permits.
pub(crate) fn inspected_permits(value: Value) -> Result<Inspected, Fault> {
    inspected_as(value, 1, |id| match id {
        [Value::BulkString(id)] => Some(Some((permit_name(id), 1))),
        _ => None,
    })
}

fn inspected_as(
    value: Value,
    each: usize,
    holder: impl Fn(&[Value]) -> Option<Option<(Vec<u8>, u64)>>,
) -> Result<Inspected, Fault> {
    let inspected = || {
        let (Value::Int(left), holders) = parts(&value).split_first()? else {
            return None;
        };
        let holders: Option<Vec<_>> = holders.chunks(each).map(holder).collect();
        Some(Inspected {
            holders: holders?.into_iter().flatten().collect(),
            ttl: ttl(*left),
        })
    };
    inspected().ok_or_else(|| unexpected(&value))
}

/// A permit's id in its text form. Very old versions of Redisson have ids of another form, which are returned as they
/// are.
pub(crate) fn permit_name(id: &[u8]) -> Vec<u8> {
    match <[u8; 16]>::try_from(id) {
        Ok(id) => PermitId::from_bytes(id).to_string().into_bytes(),
        Err(_) => id.to_vec(),
    }
}

/// A latch: its count as a text, and which opening is remembered. Either is nil if there is none.
pub(crate) fn latch_seen(value: &Value) -> Result<LatchSeen, Fault> {
    let seen = || {
        let [count, opened, Value::Int(left)] = parts(value) else {
            return None;
        };
        let count = optional_text(count)?.map(str::parse);
        Some(LatchSeen {
            count: count.transpose().ok()?,
            opened: optional_text(opened)?.map(Arc::from),
            run: None,
            ttl: ttl(*left),
        })
    };
    seen().ok_or_else(|| unexpected(value))
}

fn optional_text(value: &Value) -> Option<Option<&str>> {
    match value {
        Value::Nil => Some(None),
        value => text(value).map(Some),
    }
}

pub(crate) fn number(value: Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn two_numbers(value: Value) -> Result<(i64, i64), Fault> {
    match parts(&value) {
        [Value::Int(one), Value::Int(two)] => Ok((*one, *two)),
        _ => Err(unexpected(&value)),
    }
}

/// How much of an odd reply its error shows.
const SHOWN: usize = 100;

pub(crate) fn unexpected(value: &Value) -> Fault {
    let shown: String = format!("{value:?}").chars().take(SHOWN).collect();
    Fault::Protocol(cause(format!("unexpected reply {shown}")))
}

#[cfg(test)]
mod tests;

//! What the server's answers mean.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::backend::{Attempted, Fault, Inspected, Released, cause};
use crate::permit_id::PermitId;

/// A lease in whole milliseconds, rounded up: the server's copy must not end before ours.
pub(super) fn millis(lease: Duration) -> u64 {
    let millis = lease.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// What PTTL says of a key that exists; `None` where it has no end.
fn ttl(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// A fencing token comes as text: a number would lose its last digits in Lua.
pub(super) fn attempted(value: Value) -> Result<Attempted, Fault> {
    match &value {
        Value::Nil => Ok(Attempted::Granted { token: None }),
        Value::Int(left) => Ok(Attempted::Held { ttl: ttl(*left) }),
        Value::BulkString(text) => {
            let token = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok());
            token
                .map(|token| Attempted::Granted { token: Some(token) })
                .ok_or_else(|| unexpected(&value))
        }
        other => Err(unexpected(other)),
    }
}

/// Nil, or which of `wanted` keys is another's and for how long.
pub(super) fn attempted_all(value: Value, wanted: usize) -> Result<(usize, Attempted), Fault> {
    match &value {
        Value::Nil => Ok((0, Attempted::Granted { token: None })),
        Value::Array(values) => match values.as_slice() {
            [Value::Int(at), Value::Int(left)] => usize::try_from(at - 1)
                .ok()
                .filter(|at| *at < wanted)
                .map(|at| (at, Attempted::Held { ttl: ttl(*left) }))
                .ok_or_else(|| unexpected(&value)),
            _ => Err(unexpected(&value)),
        },
        other => Err(unexpected(other)),
    }
}

/// One value for each of `wanted` keys.
pub(super) fn each(value: Value, wanted: usize) -> Result<Vec<Value>, Fault> {
    match value {
        Value::Array(values) if values.len() == wanted => Ok(values),
        other => Err(unexpected(&other)),
    }
}

/// `own` tells how many of the listeners were this client's; it is asked only where there were any.
pub(super) fn released(value: Value, own: impl FnOnce() -> i64) -> Result<Released, Fault> {
    match value {
        Value::Int(heard @ 0..) => Ok(Released::Freed {
            others_wait: heard > 0 && heard > own(),
        }),
        Value::Int(_) => Ok(Released::NotOurs),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn forced(value: Value) -> Result<bool, Fault> {
    match value {
        Value::Int(freed) => Ok(freed == 1),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn renewed(value: Value, wanted: usize) -> Result<Vec<bool>, Fault> {
    let Value::Array(values) = &value else {
        return Err(unexpected(&value));
    };
    let ours = |value: &Value| match value {
        Value::Int(ours) => Ok(*ours == 1),
        other => Err(unexpected(other)),
    };
    let ours = values.iter().map(ours).collect::<Result<Vec<_>, _>>()?;
    if ours.len() == wanted {
        Ok(ours)
    } else {
        Err(unexpected(&value))
    }
}

pub(super) fn inspected(value: Value) -> Result<Inspected, Fault> {
    let Value::Array(values) = &value else {
        return Err(unexpected(&value));
    };
    let [Value::Int(left), holders @ ..] = values.as_slice() else {
        return Err(unexpected(&value));
    };
    let holder = |pair: &[Value]| match pair {
        [Value::BulkString(owner), Value::BulkString(count)] => {
            let count = std::str::from_utf8(count)
                .ok()
                .and_then(|count| count.parse().ok());
            count
                .map(|count| Some((owner.clone(), count)))
                // The mode of a read/write lock, which stands among the holders.
                .or_else(|| (owner == b"mode").then_some(None))
                .ok_or_else(|| unexpected(&value))
        }
        _ => Err(unexpected(&value)),
    };
    let holders = holders
        .chunks(2)
        .filter_map(|pair| holder(pair).transpose());
    Ok(Inspected {
        holders: holders.collect::<Result<_, _>>()?,
        ttl: ttl(*left),
    })
}

pub(super) fn inspected_permits(value: Value) -> Result<Inspected, Fault> {
    let Value::Array(values) = &value else {
        return Err(unexpected(&value));
    };
    let [Value::Int(left), ids @ ..] = values.as_slice() else {
        return Err(unexpected(&value));
    };
    let holder = |id: &Value| match id {
        Value::BulkString(id) => Ok((permit_name(id), 1)),
        other => Err(unexpected(other)),
    };
    Ok(Inspected {
        holders: ids.iter().map(holder).collect::<Result<_, _>>()?,
        ttl: ttl(*left),
    })
}

/// An id as people see it; what is none, from very old Redissons, stays as it is.
fn permit_name(id: &[u8]) -> Vec<u8> {
    match <[u8; 16]>::try_from(id) {
        Ok(id) => PermitId::from_bytes(id).to_string().into_bytes(),
        Err(_) => id.to_vec(),
    }
}

pub(super) fn number(value: Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn two_numbers(value: Value) -> Result<(i64, i64), Fault> {
    match &value {
        Value::Array(numbers) => match numbers.as_slice() {
            [Value::Int(one), Value::Int(two)] => Ok((*one, *two)),
            _ => Err(unexpected(&value)),
        },
        other => Err(unexpected(other)),
    }
}

fn unexpected(value: &Value) -> Fault {
    Fault::Protocol(cause(format!("unexpected reply {value:?}")))
}

/// Did the server not know the script?
pub(super) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Does the error say that the connection is of no use any more?
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    // A demoted master goes on answering: only a new look-up of the name leads away from it.
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// What an error of the driver or the server means for the verb that met it.
pub(super) fn fault(error: RedisError) -> Fault {
    let text = error.to_string();
    let kind = error.kind();
    let code = error.code().unwrap_or_default().to_owned();
    let cause = Arc::new(error);
    match kind {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Fault::Denied(cause)
        }
        ErrorKind::Io | ErrorKind::Parse => Fault::Unknown(cause),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ReadOnly,
        ) => Fault::NotNow(cause),
        _ => match said(&code, &text) {
            Said::WrongType => Fault::WrongType,
            Said::Denied => Fault::Denied(cause),
            Said::NotNow => Fault::NotNow(cause),
            Said::Else => Fault::Protocol(cause),
        },
    }
}

enum Said {
    WrongType,
    Denied,
    NotNow,
    Else,
}

/// Codes that the driver has no name for. Servers before 7 wrap what a script met into a text of their own.
fn said(code: &str, text: &str) -> Said {
    let is = |what: &str| code == what || text.contains(&format!(" {what} "));
    if is("WRONGTYPE") {
        Said::WrongType
    } else if ["NOAUTH", "WRONGPASS", "NOPERM"].into_iter().any(is)
        || text.contains("user executing the script can't")
    {
        Said::Denied
    } else if ["OOM", "NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED"]
        .into_iter()
        .any(is)
        || text.contains("max number of clients")
    {
        Said::NotNow
    } else {
        Said::Else
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_round_up_to_whole_milliseconds() {
        assert_eq!(millis(Duration::from_millis(30_000)), 30_000);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
    }

    #[test]
    fn replies_are_read_and_odd_ones_are_faults() {
        assert_eq!(
            attempted(Value::Nil).unwrap(),
            Attempted::Granted { token: None }
        );
        assert_eq!(
            attempted(Value::Int(-1)).unwrap(),
            Attempted::Held { ttl: None }
        );
        assert!(attempted(Value::Okay).is_err());
        assert_eq!(
            released(Value::Int(1), || 1).unwrap(),
            Released::Freed { others_wait: false }
        );
        assert_eq!(released(Value::Int(-1), || 0).unwrap(), Released::NotOurs);
        assert!(renewed(Value::Array(vec![Value::Int(1)]), 2).is_err());
        let held = vec![
            Value::Int(5),
            Value::BulkString(b"o".to_vec()),
            Value::BulkString(b"2".to_vec()),
        ];
        assert_eq!(
            inspected(Value::Array(held)).unwrap().holders,
            [(b"o".to_vec(), 2)]
        );
    }
}

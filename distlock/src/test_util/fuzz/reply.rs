//! What a server replies to scripts.

use redis::{RedisError, Value};

use super::values::values;
use crate::backend::redis::reply::{self, Elsewhere};
use crate::backend::{Attempted, AttemptedAll, Fault, Released, Target};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Kind;
use crate::resource::owner::Owner;

/// What a server replies to scripts, in RESP. Each reply is read or refused by everything that reads replies. What is read has a meaning.
pub fn reply(bytes: &[u8]) {
    for value in values(bytes) {
        match value.extract_error() {
            Ok(value) => read(&value),
            Err(error) => refused(error),
        }
    }
}

fn read(value: &Value) {
    let all = || value.clone();
    let is_grant = matches!(value, Value::Nil | Value::BulkString(_));
    let mut faults = Vec::new();
    let mut attempts = |attempted: Result<Attempted, Fault>| match attempted {
        Ok(attempted) => assert!(is_grant || !is_granted(&attempted), "{value:?}"),
        Err(fault) => faults.push(fault),
    };
    attempts(reply::attempted(all()));
    attempts(reply::attempted_permits(all(), false));
    for wanted in 1..3 {
        read_for_each(value, wanted, &mut faults);
    }
    // Of these, none or more than there are may be of this client.
    for own in [0, 1, i64::MAX] {
        match reply::released(all(), || own) {
            Ok(Released::Freed { .. } | Released::NotOurs) => {
                assert!(matches!(value, Value::Int(_)));
            }
            Err(fault) => faults.push(fault),
        }
    }
    for inspected in [reply::inspected(all()), reply::inspected_permits(all())] {
        match (inspected, value) {
            (Ok(inspected), Value::Array(values)) => {
                assert!(inspected.holders.len() < values.len());
            }
            (Ok(_), _) => panic!("holders in {value:?}"),
            (Err(fault), _) => faults.push(fault),
        }
    }
    faults.extend(reply::forced(all()).err());
    faults.extend(reply::latch_seen(value).err());
    faults.extend(reply::number(all()).err());
    faults.extend(reply::two_numbers(all()).err());
    let is_protocol = |fault: &Fault| matches!(fault, Fault::Protocol(_));
    assert!(faults.iter().all(is_protocol), "{faults:?}");
}

fn is_granted(attempted: &Attempted) -> bool {
    matches!(attempted, Attempted::Granted { .. })
}

/// Reads the reply to a script that was called for as many holds as are `wanted`.
fn read_for_each(value: &Value, wanted: usize, faults: &mut Vec<Fault>) {
    let all = || value.clone();
    let attempted = reply::attempted_all(all(), wanted);
    if let Ok(AttemptedAll { at, attempted }) = &attempted {
        assert!(*at < wanted && is_granted(attempted) == (*value == Value::Nil));
    }
    if let Some(at) = reply::of_another_type(value, wanted) {
        assert!(at < wanted && attempted.is_err());
    }
    faults.extend(attempted.err());
    match reply::renewed(all(), wanted) {
        Ok(ours) => assert_eq!(ours.len(), wanted),
        Err(fault) => faults.push(fault),
    }
    for kind in [Kind::Reentrant, Kind::CountDownLatch] {
        match reply::looked(all(), &targets(kind, wanted)) {
            Ok(looked) => assert_eq!(looked.len(), wanted),
            Err(fault) => faults.push(fault),
        }
    }
}

/// The fault of each error has a text. A redirect is never read as a missing script.
fn refused(error: RedisError) {
    let elsewhere = reply::elsewhere(&error);
    assert!(
        elsewhere.is_none() || !reply::is_noscript(&error),
        "{error}"
    );
    // It only must not panic.
    let _replaced = reply::breaks_connection(&error);
    let text = error.to_string();
    let fault = reply::fault(error);
    assert!(!fault.to_string().is_empty(), "{text}");
    if elsewhere == Some(Elsewhere::TryAgain) {
        assert!(matches!(fault, Fault::NotNow(_)), "{fault}");
    }
}

fn targets(kind: Kind, many: usize) -> Vec<Target> {
    let key = Key::new("", "k").unwrap_or_else(|error| panic!("{error}"));
    let resource = Resource { kind, key };
    let target = Target::of(&resource, Owner::new(uuid::Uuid::nil(), 1));
    vec![target; many]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_util::fuzz::values::any_value;

    proptest! {
        #[test]
        fn reply_of_any_shape_is_read_or_refused(value in any_value()) {
            super::read(&value);
        }

        #[test]
        fn error_of_any_text_has_a_meaning(
            code in "(ERR|MOVED|ASK|TRYAGAIN|CROSSSLOT|NOSCRIPT|READONLY|OOM|BUSY|[A-Z]{0,8})",
            text in "[^\r\n]{0,60}",
        ) {
            super::reply(format!("-{code} {text}\r\n").as_bytes());
        }
    }
}

//! What the answer to a batch says of each operation.

use redis::{RedisError, Value, parse_redis_value};

use crate::backend::redis::reply;
use crate::backend::{Fault, cause};

/// How the script begins the answer of an operation that has met an error.
const FAILED: &[u8] = b"failed";

pub(crate) fn read_answers(value: Value, operations: usize) -> Vec<Result<Value, Fault>> {
    match reply::each(value, operations) {
        Ok(values) => values.into_iter().map(of_one).collect(),
        // It says of no operation whether it was carried out.
        Err(odd) => {
            let unknown = Fault::Unknown(cause(odd.to_string()));
            vec![Err(unknown); operations]
        }
    }
}

/// Whether an attempt with this answer may have been granted.
pub(crate) fn may_be_granted(answer: &Result<Value, Fault>) -> bool {
    match answer {
        Ok(value) => matches!(value, Value::Nil),
        Err(fault) => !fault.was_refused(),
    }
}

/// The answer of one operation. An error in it is read as if it was the answer to the command of this operation alone.
fn of_one(value: Value) -> Result<Value, Fault> {
    match reply::parts(&value) {
        [Value::BulkString(word), Value::BulkString(text)] if word == FAILED => {
            Err(reply::fault(error(&String::from_utf8_lossy(text))))
        }
        _ => Ok(value),
    }
}

/// The error that a server's text stands for.
fn error(text: &str) -> RedisError {
    // A line break would end the error.
    let line = format!("-{}\r\n", text.replace(['\r', '\n'], " "));
    let error = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
    match error {
        Err(error) => error,
        Ok(_) => RedisError::from((
            redis::ErrorKind::Extension,
            "an error of a script",
            text.to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn error_of_an_operation_is_its_own_and_means_what_it_means_alone() {
        let failed = |error: &str| Value::Array(vec![text("failed"), text(error)]);
        let refusal = Value::Array(vec![Value::Int(1), text("owner"), Value::Int(0)]);
        let answers = Value::Array(vec![
            Value::Nil,
            failed("WRONGTYPE Operation against a key"),
            refusal.clone(),
            failed("OOM command not allowed\r\nwhen used memory > 'maxmemory'."),
            failed("ERR value is not an integer or out of range"),
            failed("ERR ACL failure in script: No permissions to access a key"),
            Value::Int(-1),
        ]);
        let mut answers = read_answers(answers, 7).into_iter();
        let mut next = || answers.next().unwrap();
        assert_eq!(next().unwrap(), Value::Nil);
        assert!(matches!(next(), Err(Fault::WrongType(None))));
        assert_eq!(next().unwrap(), refusal);
        assert!(matches!(next(), Err(Fault::NotNow(_))));
        assert!(matches!(next(), Err(Fault::Protocol(_))));
        assert!(matches!(next(), Err(Fault::Denied(..))));
        assert_eq!(next().unwrap(), Value::Int(-1));
    }

    #[test]
    fn answer_with_too_few_or_too_many_parts_leaves_each_outcome_unknown() {
        for parts in [vec![], vec![Value::Nil], vec![Value::Nil; 3]] {
            let answers = read_answers(Value::Array(parts), 2);
            assert_eq!(answers.len(), 2);
            for answer in answers {
                assert!(matches!(answer, Err(Fault::Unknown(_))), "{answer:?}");
                assert!(may_be_granted(&answer));
            }
        }
        assert!(matches!(
            read_answers(Value::Nil, 1)[0],
            Err(Fault::Unknown(_))
        ));
    }
}

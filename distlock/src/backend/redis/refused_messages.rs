//! Messages that a server refuses to publish. The script does everything else, and waiters poll the key.

use std::sync::atomic::{AtomicU8, Ordering};

use redis::Value;

use super::reply;
use super::servers::Servers;
use crate::telemetry;

/// How the scripts begin the answer that says why a message was not published.
const UNTOLD: &[u8] = b"untold";

/// Which causes of refusals the log already names.
#[derive(Debug, Default)]
pub(super) struct RefusedMessages(AtomicU8);

impl RefusedMessages {
    /// Returns the answer of a script. If the server refused a message, the log says so once for each cause.
    pub(super) fn read(&self, value: Value, servers: &Servers) -> Value {
        match without_messages(value) {
            Ok(answer) => answer,
            Err((why, answer)) => {
                let cause = 1 << reply::cause_of_refusal(&why);
                // Relaxed: the bits guard no other data. They only limit the log lines.
                if self.0.fetch_or(cause, Ordering::Relaxed) & cause == 0 {
                    telemetry::nobody_is_told(&servers.name(), &why);
                }
                answer
            }
        }
    }
}

/// The answer of a script; why a message was not published, and the answer, if one was not.
fn without_messages(value: Value) -> Result<Value, (String, Value)> {
    let is_untold =
        |parts: &[Value]| matches!(parts, [Value::BulkString(word), _, _] if word == UNTOLD);
    let parts = match value {
        Value::Array(parts) if is_untold(&parts) => parts,
        answer => return Ok(answer),
    };
    let mut parts = parts.into_iter().skip(1);
    let why = match parts.next() {
        Some(Value::BulkString(why)) => String::from_utf8_lossy(&why).into_owned(),
        _ => String::new(),
    };
    Err((why, parts.next().unwrap_or(Value::Nil)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn answer_is_read_from_what_says_that_nobody_was_told() {
        for answer in [
            Value::Nil,
            Value::Int(-1),
            Value::Array(vec![Value::Int(0)]),
        ] {
            assert_eq!(without_messages(answer.clone()), Ok(answer.clone()));
            let untold = Value::Array(vec![text("untold"), text("why"), answer.clone()]);
            assert_eq!(without_messages(untold), Err(("why".to_owned(), answer)));
        }
        // The answer of an attempt names an owner in the second place.
        let refusal = Value::Array(vec![Value::Int(1), text("owner"), Value::Int(0)]);
        assert_eq!(without_messages(refusal.clone()), Ok(refusal));
    }
}

//! Messages that a server refuses to publish. The script does everything else, and waiters poll the key.

use std::net::SocketAddr;

use redis::Value;

use super::reply;
use super::servers::Servers;
use crate::resource::key::Key;
use crate::sync::Mutex;
use crate::telemetry;

/// How the scripts begin the answer that says why a message was not published.
const UNTOLD: &[u8] = b"untold";

/// Which causes of refusals the log already names.
#[derive(Debug, Default)]
pub(super) struct RefusedMessages(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The server that has refused, if one has all keys. The nodes of a cluster count as one.
    server: Option<SocketAddr>,
    /// Each by its bit.
    causes: u8,
}

impl Told {
    /// The server refuses for this cause. Returns whether that is to be told.
    fn is_new(&mut self, server: Option<SocketAddr>, cause: u8) -> bool {
        if self.server != server {
            // The client has moved, and what is said of the one server says nothing of the other.
            *self = Self { server, causes: 0 };
        }
        let is_new = self.causes & cause == 0;
        self.causes |= cause;
        is_new
    }
}

impl RefusedMessages {
    /// Returns the answer of a script. If the server refused a message, the log says so once for each cause.
    pub(super) fn read(&self, value: Value, key: &Key, servers: &Servers) -> Value {
        match without_messages(value) {
            Ok(answer) => answer,
            Err((why, answer)) => {
                let cause = 1 << reply::cause_of_refusal(&why);
                let reached_at = || servers.route(key).with_node(|node| node.reached_at());
                let server = servers.is_one_server().then(reached_at).flatten();
                let is_new = self.0.lock().is_new(server, cause);
                if is_new {
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
    fn each_cause_is_told_once_of_each_server_that_the_client_moves_to() {
        let [one, other] = [1, 2].map(|port| Some(SocketAddr::from(([10, 0, 0, 1], port))));
        let mut told = Told::default();
        for server in [one, other, one] {
            for cause in [1, 4] {
                assert!(told.is_new(server, cause));
                assert!(!told.is_new(server, cause));
            }
        }
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

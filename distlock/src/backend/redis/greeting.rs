//! What a server tells when a connection to it is made: whether this crate can use it.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Value, cmd};

use super::reply;
use crate::backend::{Fault, cause};
use crate::telemetry;

/// What an error means that the driver met while it made a connection. No command of a lock was sent yet, so nothing was
/// executed.
pub(super) fn refused(server: &str, error: RedisError) -> Fault {
    let text = error.to_string();
    let unsupported = |reason: &str| Fault::Unsupported {
        server: server.to_owned(),
        reason: reason.to_owned(),
    };
    if error.kind() == ErrorKind::RESP3NotSupported
        || text.contains("NOPROTO")
        || text.contains("unknown command") && text.to_uppercase().contains("HELLO")
    {
        return unsupported(
            "it does not know the protocol RESP3 (command HELLO); use Redis 6.0 or later, or Valkey, and do not \
             disable HELLO",
        );
    }
    if text.contains("refused to switch database") {
        return unsupported(
            "it does not have the database of the URL; use a lower number, or raise `databases` in its configuration",
        );
    }
    if error.kind() == ErrorKind::Parse {
        let text = "what answers there does not speak the protocol of Redis";
        return Fault::NotNow(cause(text));
    }
    match reply::fault(error) {
        Fault::Denied(cause) => Fault::LoginDenied(cause),
        Fault::Unknown(cause) | Fault::Protocol(cause) => Fault::NotNow(cause),
        other => other,
    }
}

/// Asks the server what it is. If the user may not ask, the connection is used as it is.
pub(super) async fn check(
    server: &str,
    connection: &mut MultiplexedConnection,
) -> Result<(), Fault> {
    let mut hello = cmd("HELLO");
    hello.arg(3);
    let answer = match hello.query_async::<Value>(connection).await {
        Ok(answer) => answer,
        Err(error) => match refused(server, error) {
            Fault::LoginDenied(_) => return Ok(()),
            fault => return Err(fault),
        },
    };
    if mode(&answer).is_some_and(|mode| mode == b"cluster") {
        return Err(Fault::Unsupported {
            server: server.to_owned(),
            reason: "it is a node of a cluster, which this version does not support; use a single server"
                .to_owned(),
        });
    }
    Ok(())
}

fn mode(hello: &Value) -> Option<&[u8]> {
    let Value::Map(fields) = hello else {
        return None;
    };
    fields.iter().find_map(|field| match field {
        (Value::BulkString(name), Value::BulkString(mode)) if name == b"mode" => {
            Some(mode.as_slice())
        }
        (Value::SimpleString(name), Value::SimpleString(mode)) if name == "mode" => {
            Some(mode.as_bytes())
        }
        _ => None,
    })
}

/// Warns of a server that deletes keys when its memory is full. Says nothing if the user may not ask.
pub(super) async fn warn_of_eviction(server: &str, connection: &mut MultiplexedConnection) {
    let mut info = cmd("INFO");
    info.arg("memory");
    let Ok(text) = info.query_async::<String>(connection).await else {
        return;
    };
    if let Some(policy) = evicts(&text) {
        telemetry::server_evicts(server, policy);
    }
}

/// The policy by which the server evicts keys, if it has a memory limit and such a policy.
fn evicts(info: &str) -> Option<&str> {
    let field = |name: &str| {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| *field == name);
        values.next().map(|(_, value)| value.trim())
    };
    let has_limit = field("maxmemory").is_some_and(|limit| limit != "0");
    field("maxmemory_policy").filter(|policy| has_limit && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_evict_only_below_a_memory_limit() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:0B\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        assert_eq!(evicts(&info(1_000, "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(evicts(&info(1_000, "noeviction")), None);
        assert_eq!(evicts(&info(0, "allkeys-lru")), None);
        assert_eq!(evicts("# Memory"), None);
    }
}

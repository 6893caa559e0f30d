//! What a server says when a connection to it is made: whether this crate can use it.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, cmd};

use super::driven::Driven;
use super::tls;
use crate::backend::redis::reply;
use crate::backend::redis::script::{self, Form, Publish};
use crate::backend::{Fault, cause};

/// Why a login was refused that had no password, and what to do. The server's own words are about the command HELLO.
const NO_PASSWORD: &str = "NOAUTH: the server asks for a password, and the client has none; write it in the URL, as in \
    `redis://:password@host` or `redis://user:password@host`, and that of Sentinels as `sentinel_password=..`";

/// What an error means that the driver met while it made a connection. No command of a lock was sent yet, so nothing was
/// executed.
pub(crate) fn refused(server: &str, error: RedisError) -> Fault {
    if let Some(reason) = tls::refusal(&error) {
        return Fault::LoginDenied(cause(reason));
    }
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
        return database_refused(server, error.detail().unwrap_or_default());
    }
    if error.kind() == ErrorKind::Parse {
        let text = "what answers there does not speak the protocol of Redis";
        return Fault::NotNow(cause(text));
    }
    match reply::fault(error) {
        Fault::Denied(..) if text.contains("NOAUTH") => Fault::LoginDenied(cause(NO_PASSWORD)),
        Fault::Denied(_, cause) => Fault::LoginDenied(cause),
        Fault::Unknown(cause) | Fault::Protocol(cause) => Fault::NotNow(cause),
        other => other,
    }
}

/// What it means that the server refused to select the database of the URL. The driver passes on what the server `said`, without the
/// code before it. The refusals that may pass are few: a server is busy with a script, loads its data, or lacks its master. That there is no
/// such database, each product says in words of its own.
fn database_refused(server: &str, said: &str) -> Fault {
    let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
    if says(&["is busy", "is loading", "MASTER is down"]) {
        return Fault::NotNow(cause(said));
    }
    if says(&["no permissions"]) {
        return Fault::LoginDenied(cause(format!(
            "the user may not select the database of the URL ({said}); grant `+select`, or use database 0"
        )));
    }
    Fault::Unsupported {
        server: server.to_owned(),
        reason: format!(
            "it does not have the database of the URL ({said}); use a lower number, or raise `databases` in its configuration; \
             a cluster has others than 0 only with Valkey 9 and later, by its setting `cluster-databases`"
        ),
    }
}

/// What a server has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A single server.
    Server,
    /// The master of a service that Sentinels watch.
    Master,
    Sentinel,
    /// A node of a cluster.
    Node,
}

/// Why a client of one server cannot use a node of a cluster, and what to do.
pub(crate) const NODE_OF_A_CLUSTER: &str =
    "it is a node of a cluster; write `redis+cluster://` instead of `redis://`";

/// Why a client of one server cannot use a replica, and what to do.
const REPLICA: &str = "is a replica, which grants no locks; write the address of its master in the URL, or the Sentinels \
    that know the master, as in `redis+sentinel://host:26379/service`";

/// Asks the server what it is, and tells it what to call this connection. If the user may not ask, the connection is used as
/// it is.
pub(crate) async fn check(
    server: &str,
    expected: Expected,
    client_name: &str,
    connection: &mut Driven,
) -> Result<(), Fault> {
    let mut hello = cmd("HELLO");
    hello.arg(3);
    // With the question, because every user may send it. CLIENT SETNAME is a right.
    if expected != Expected::Sentinel {
        hello.arg("SETNAME").arg(client_name);
    }
    let answer = match hello.query_async::<Value>(connection).await {
        Ok(answer) => answer,
        Err(error) => match refused(server, error) {
            Fault::LoginDenied(_) => return Ok(()),
            fault => return Err(fault),
        },
    };
    let unsupported = |reason: &str| {
        Err(Fault::Unsupported {
            server: server.to_owned(),
            reason: reason.to_owned(),
        })
    };
    match (expected, field(&answer, "mode").unwrap_or_default()) {
        (Expected::Server | Expected::Master, "sentinel") => unsupported(
            "it is a Sentinel; write `redis+sentinel://host:26379/service`, or use the port of a server",
        ),
        (Expected::Sentinel, "standalone" | "cluster") => unsupported(
            "it is no Sentinel; write `redis://` for a single server, or use the port of the Sentinel, usually 26379",
        ),
        (Expected::Server | Expected::Master, "cluster") => unsupported(NODE_OF_A_CLUSTER),
        (Expected::Node, "standalone" | "sentinel") => unsupported(
            "it is not a node of a cluster; write `redis://` instead of `redis+cluster://` for a single server",
        ),
        _ => match field(&answer, "role") {
            Some(role) if expected == Expected::Master && role != "master" => Err(Fault::NotNow(
                cause(format!("it is no master, its role is `{role}`")),
            )),
            Some("replica" | "slave") if expected == Expected::Server => {
                Err(Fault::NotNow(cause(format!("{server} {REPLICA}"))))
            }
            _ => Ok(()),
        },
    }
}

/// A field of the answer to HELLO.
fn field<'a>(hello: &'a Value, wanted: &str) -> Option<&'a str> {
    let Value::Map(fields) = hello else {
        return None;
    };
    let found = fields
        .iter()
        .find(|(name, _)| reply::text(name) == Some(wanted));
    found.and_then(|(_, value)| reply::text(value))
}

/// The commands that a lock needs. Most of them are in scripts, and a script that meets an unknown command has executed those
/// before it. PUBLISH is not among them: a script goes on without it.
const NEEDED: [&str; 11] = [
    "DEL", "EVALSHA", "EXISTS", "HDEL", "HEXISTS", "HGET", "HKEYS", "HLEN", "HSET", "PEXPIRE",
    "PTTL",
];

/// Asks whether the server has the commands that a lock needs: they may be renamed or disabled.
pub(crate) fn ask_for_commands() -> Cmd {
    let call = script::COMMANDS_CHECK
        .call(Form::Source, Publish::Plain)
        .keys(std::iter::empty());
    let call = NEEDED.iter().fold(call, |call, name| call.arg(name));
    call.into_cmd()
}

/// Whether the server has the commands that a lock needs, by its answer. A server that says nothing of it counts as one that
/// has them: its user may not ask, or it loads its data.
pub(crate) fn has_commands(server: &str, answer: RedisResult<Value>) -> Result<(), Fault> {
    let missing: Vec<String> = match answer {
        Ok(missing) => redis::from_redis_value(missing).unwrap_or_default(),
        Err(error) if error.to_string().contains("unknown command") => vec!["EVAL".to_owned()],
        // The driver reports the end of a connection once, and nobody listens yet.
        Err(error) if reply::breaks_connection(&error) => return Err(refused(server, error)),
        Err(_) => Vec::new(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    Err(Fault::Unsupported {
        server: server.to_owned(),
        reason: format!(
            "it does not know {}, which locks need; remove `rename-command` for it from the server's configuration",
            missing.join(", ")
        ),
    })
}

/// Whether the server has messages that only the nodes with a slot get. Fails if the server cannot say it just now. A server that
/// refuses to say it counts as one without.
pub(crate) async fn has_sharded_messages(connection: &mut Driven) -> Result<bool, Fault> {
    let check = script::COMMANDS_CHECK.call(Form::Source, Publish::Plain);
    let call = check
        .keys(std::iter::empty())
        .arg("SPUBLISH")
        .arg("SSUBSCRIBE");
    match call.into_cmd().query_async::<Value>(connection).await {
        Ok(missing) => {
            let missing = redis::from_redis_value::<Vec<String>>(missing);
            Ok(missing.is_ok_and(|missing| missing.is_empty()))
        }
        Err(error) => match reply::fault(error) {
            fault @ (Fault::NotNow(_) | Fault::Unknown(_)) => Err(fault),
            _ => Ok(false),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_to_select_a_database_passes_only_if_the_server_is_not_ready() {
        let refused = |said: &str| {
            let line = format!("-{said}\r\n");
            let answer = redis::parse_redis_value(line.as_bytes());
            let error = answer.and_then(Value::extract_error).unwrap_err();
            // What the driver makes of it.
            let kind = ErrorKind::Server(redis::ServerErrorKind::ResponseError);
            let words = error.detail().unwrap_or_default().to_owned();
            let error = RedisError::from((kind, "Redis server refused to switch database", words));
            refused("host:6379", error)
        };
        for missing in [
            "ERR DB index is out of range",
            "ERR invalid DB index",
            "ERR SELECT is not allowed in cluster mode",
            "ERR unknown command 'SELECT', with args beginning with: '3'",
            "ERR Only 0th database is supported! Selected DB: 3",
        ] {
            let fault = refused(missing);
            assert!(matches!(fault, Fault::Unsupported { .. }), "{fault}");
        }
        for denied in [
            "NOPERM this user has no permissions to run the 'select' command",
            "NOPERM User shop has no permissions to run the 'select' command",
        ] {
            let fault = refused(denied);
            assert!(matches!(fault, Fault::LoginDenied(_)), "{fault}");
            assert!(fault.to_string().contains("+select"), "{fault}");
        }
        for passing in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            let fault = refused(passing);
            let (_, words) = passing.split_once(' ').unwrap();
            assert!(matches!(fault, Fault::NotNow(_)), "{fault}");
            assert!(fault.to_string().contains(words), "{fault}");
        }
    }

    #[test]
    fn needed_commands_are_those_that_the_guide_grants_for_locks() {
        let guide = include_str!("../../../../guide/least_privilege.md");
        let (_, rules) = guide.split_once("```text").unwrap();
        let (locks, _) = rules.split_once("```").unwrap();
        let granted = locks
            .split_whitespace()
            .filter_map(|word| word.strip_prefix('+'));
        // These are no part of a script, and the server names them if they are missing.
        let granted = granted
            .filter(|name| !["ping", "eval", "subscribe", "unsubscribe", "publish"].contains(name));
        let mut granted: Vec<String> = granted.map(str::to_uppercase).collect();
        granted.sort();
        assert_eq!(granted, NEEDED);
    }
}

//! What a server tells when a connection to it is made: whether this crate can use it.

use std::io;
use std::path::Path;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ErrorKind, RedisError, Value, cmd};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{reply, script};
use crate::backend::{Fault, cause};
use crate::config::{FAREWELL_LENGTH, FAREWELL_TIMEOUT};
use crate::telemetry;

/// Why a server ended a connection that the driver was about to establish, if the server says so.
///
/// A server that has too many clients says it unasked, and closes the connection. The commands that the driver has sent by
/// then make the system reset the connection, and the driver reports the reset alone. A connection that sends nothing hears
/// what the server says.
pub(super) async fn turned_away(address: &ConnectionAddr) -> Option<Fault> {
    // A server that has a free place by now says nothing, and waits for a command.
    let heard = timeout(FAREWELL_TIMEOUT, farewell(address)).await;
    said(&heard.ok()?.ok()?)
}

/// Whether the server may have turned a connection away that ended with this error.
pub(super) fn may_be_turned_away(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

async fn farewell(address: &ConnectionAddr) -> io::Result<Vec<u8>> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            read(TcpStream::connect((host.as_str(), *port)).await?).await
        }
        ConnectionAddr::Unix(path) => from_socket(path).await,
        _ => Ok(Vec::new()),
    }
}

#[cfg(unix)]
async fn from_socket(path: &Path) -> io::Result<Vec<u8>> {
    read(tokio::net::UnixStream::connect(path).await?).await
}

#[cfg(not(unix))]
async fn from_socket(_path: &Path) -> io::Result<Vec<u8>> {
    Ok(Vec::new())
}

/// All that the server sends before it closes the connection.
async fn read(stream: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let _length = stream.take(FAREWELL_LENGTH).read_to_end(&mut line).await?;
    Ok(line)
}

/// What the error that a server sends unasked means.
fn said(line: &[u8]) -> Option<Fault> {
    let line = String::from_utf8_lossy(line);
    let text = line.strip_prefix('-')?.lines().next()?;
    if text.contains("max number of clients") {
        return Some(Fault::NotNow(cause(format!(
            "the server admits no further client ({text}); close connections to it, or raise its `maxclients`; each client \
             of this crate has two connections"
        ))));
    }
    if text.starts_with("DENIED") {
        // The rest of the long text is about all the ways out.
        let short = text.split(". ").next().unwrap_or(text);
        return Some(Fault::LoginDenied(cause(short)));
    }
    Some(Fault::NotNow(cause(text)))
}

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

/// The commands that a lock needs. Most of them are in scripts, and a script that meets an unknown command has executed those
/// before it.
const NEEDED: [&str; 10] = [
    "DEL", "EVALSHA", "EXISTS", "HEXISTS", "HGET", "HKEYS", "HSET", "PEXPIRE", "PTTL", "PUBLISH",
];

/// Asks whether the server has the commands that a lock needs: they may be renamed or disabled. If it does not say, the
/// connection is used as it is.
pub(super) async fn check_commands(
    server: &str,
    connection: &mut MultiplexedConnection,
) -> Result<(), Fault> {
    let call = script::COMMANDS_CHECK.by_source().keys(std::iter::empty());
    let call = NEEDED.iter().fold(call, |call, name| call.arg(name));
    let missing: Vec<String> = match call.into_cmd().query_async(connection).await {
        Ok(missing) => missing,
        Err(error) if error.to_string().contains("unknown command") => vec!["EVAL".to_owned()],
        Err(_) => return Ok(()),
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
    fn errors_that_a_server_sends_unasked_are_told_with_what_to_do() {
        let told = |line: &str| said(line.as_bytes()).map(|fault| fault.to_string());
        let full = told("-ERR max number of clients reached\r\n").unwrap();
        assert!(full.contains("max number of clients reached") && full.contains("`maxclients`"));
        let protected = "-DENIED Redis is running in protected mode because there is no password. In this mode ..\r\n";
        assert_eq!(
            told(protected).unwrap(),
            "login denied: DENIED Redis is running in protected mode because there is no password"
        );
        assert_eq!(told("-ERR odd\r\n").unwrap(), "not executed: ERR odd");
        assert_eq!(told(""), None);
        assert_eq!(told("HTTP/1.1 400 Bad Request\r\n"), None);
    }

    #[test]
    fn needed_commands_are_those_that_the_guide_grants_for_locks() {
        let guide = include_str!("../../guide/least_privilege.md");
        let (_, rules) = guide.split_once("```text").unwrap();
        let (locks, _) = rules.split_once("```").unwrap();
        let granted = locks
            .split_whitespace()
            .filter_map(|word| word.strip_prefix('+'));
        // These are no part of a script, and the server names them if they are missing.
        let granted =
            granted.filter(|name| !["ping", "eval", "subscribe", "unsubscribe"].contains(name));
        let mut granted: Vec<String> = granted.map(str::to_uppercase).collect();
        granted.sort();
        assert_eq!(granted, NEEDED);
    }

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

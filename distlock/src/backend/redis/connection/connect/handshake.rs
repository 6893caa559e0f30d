//! What a server says when a connection to it is made: whether this crate can use it.

use std::io;
use std::path::Path;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, cmd};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::driven::Driven;
use super::tls;
use crate::backend::redis::connection::addresses::{Address, Endpoint};
use crate::backend::redis::reply;
use crate::backend::redis::script::{self, Publish};
use crate::backend::{Fault, cause};
use crate::config::{GOODBYE_LENGTH, GOODBYE_TIMEOUT};

/// The head of a message of TLS 1.2 or 1.3 that comes too early, and its one byte. A server that speaks TLS answers with an
/// alert. To another one, the line is not over.
const EARLY_RECORD: [u8; 6] = [0x17, 3, 3, 0, 1, 0];

/// What an alert begins with.
const ALERT: [u8; 2] = [0x15, 3];

const SPEAKS_NO_TLS: &str =
    "it speaks no TLS there; write `redis` and not `rediss` in the URL, or use its port for TLS";

/// Why a server ended a connection that the driver was about to establish, if it says so on a separate connection.
pub(crate) async fn rejection(
    endpoint: &Endpoint,
    has_tls: bool,
    expected: Expected,
) -> Option<Fault> {
    let server = endpoint.address.to_string();
    match (&endpoint.address, endpoint.at) {
        (Address::Unix(path), _) => from_socket(path, server).await,
        (Address::Tcp { .. }, None) => None,
        (Address::Tcp { .. }, Some(at)) => {
            let connecting = TcpStream::connect(at);
            let stream = timeout(GOODBYE_TIMEOUT, connecting).await.ok()?.ok()?;
            if has_tls {
                plain_answer(stream, server, expected).await
            } else {
                goodbye(stream, server).await
            }
        }
    }
}

/// Whether the server may have turned a connection away that ended with this error.
pub(crate) fn may_be_rejection(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

/// What the server says unasked, or with TLS.
///
/// A server that has too many clients says it unasked, and closes the connection. The commands that the driver has sent by
/// then make the system reset the connection, and the driver reports the reset alone. A connection that sends nothing hears
/// what the server says.
async fn goodbye(mut stream: impl AsyncRead + AsyncWrite + Unpin, server: String) -> Option<Fault> {
    let mut line = Vec::new();
    let mut rest = (&mut stream).take(GOODBYE_LENGTH);
    match timeout(GOODBYE_TIMEOUT, rest.read_to_end(&mut line)).await {
        Ok(read) => {
            read.ok()?;
            said(&line)
        }
        // It has a free place by now, and waits for a command. Or it waits for a handshake.
        Err(_) => {
            let answer = answer(stream, &EARLY_RECORD).await?;
            answer.starts_with(&ALERT).then(|| Fault::Unsupported {
                server,
                reason: "it speaks TLS there; write `rediss` and not `redis` in the URL, or use its port without TLS".to_owned(),
            })
        }
    }
}

/// What a server without TLS says to a line.
async fn plain_answer(stream: TcpStream, server: String, expected: Expected) -> Option<Fault> {
    let answer = answer(stream, b"PING\n").await?;
    // What a command gets, also from a user who may not ask.
    let is_plain = answer.starts_with(b"+") || answer.starts_with(b"-");
    is_plain.then(|| Fault::Unsupported {
        server,
        reason: match expected {
            // The port may be none of the URL. Servers before version 7.2 name the plain ports by default.
            Expected::Node => {
                SPEAKS_NO_TLS.to_owned()
                    + "; if the other nodes name that port, set `tls-cluster yes`"
            }
            _ => SPEAKS_NO_TLS.to_owned(),
        },
    })
}

/// The first bytes that come after these were sent.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> Option<Vec<u8>> {
    let answer = async {
        stream.write_all(sent).await?;
        let mut first = vec![0; 64];
        let length = stream.read(&mut first).await?;
        first.truncate(length);
        Ok::<_, io::Error>(first)
    };
    timeout(GOODBYE_TIMEOUT, answer).await.ok()?.ok()
}

#[cfg(unix)]
async fn from_socket(path: &Path, server: String) -> Option<Fault> {
    goodbye(tokio::net::UnixStream::connect(path).await.ok()?, server).await
}

#[cfg(not(unix))]
async fn from_socket(_path: &Path, _server: String) -> Option<Fault> {
    None
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
    let text = |value: &'a Value| match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    let found = fields.iter().find(|(name, _)| text(name) == Some(wanted));
    found.and_then(|(_, value)| text(value))
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
        .by_source(Publish::Plain)
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
    let check = script::COMMANDS_CHECK.by_source(Publish::Plain);
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

/// For how long the server has been up at least. It subtracts two times that it has cut to whole seconds, so what it says may be
/// nearly a second too much.
pub(crate) async fn uptime(connection: &mut Driven) -> Result<Duration, Fault> {
    let mut info = cmd("INFO");
    info.arg("server");
    let text = match info.query_async::<String>(connection).await {
        Ok(text) => text,
        Err(error) => {
            return Err(match reply::fault(error) {
                Fault::Denied(_, denied) => Fault::LoginDenied(cause(format!(
                    "`restart_grace` needs the right to ask how long the server has been up, `+info`: {denied}"
                ))),
                fault => fault,
            });
        }
    };
    let seconds = field_of_info(&text, "uptime_in_seconds").and_then(|text| text.parse().ok());
    // A rule of tests/model: uptime_is_counted_a_second_shorter.
    let at_least = |seconds: u64| Duration::from_secs(seconds.saturating_sub(1));
    seconds.map(at_least).ok_or_else(|| {
        let text = "the server does not say how long it has been up, which `restart_grace` needs";
        Fault::Protocol(cause(text))
    })
}

/// The id of the server's run in the answer to INFO. Some providers show zeros instead.
pub(crate) fn run_id(info: &str) -> Option<&str> {
    field_of_info(info, "run_id").filter(|id| id.bytes().any(|byte| byte != b'0'))
}

/// The id of the run of a server that says that it is a master.
pub(crate) fn run_of_master<'a>(replication: &str, server: &'a str) -> Option<&'a str> {
    let is_master = field_of_info(replication, "role") == Some("master");
    run_id(server).filter(|_| is_master)
}

/// The policy by which the server deletes keys when its memory is full, by its answer to INFO.
pub(crate) fn evicts(memory: &Value) -> Option<String> {
    let info = redis::from_redis_value_ref::<String>(memory).ok()?;
    policy_of_eviction(&info).map(str::to_owned)
}

/// The policy by which the server evicts keys, if it has a memory limit and such a policy.
fn policy_of_eviction(info: &str) -> Option<&str> {
    let has_limit = field_of_info(info, "maxmemory").is_some_and(|limit| limit != "0");
    field_of_info(info, "maxmemory_policy").filter(|policy| has_limit && *policy != "noeviction")
}

/// A field of the answer to INFO.
fn field_of_info<'a>(info: &'a str, wanted: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| *field == wanted);
    found.map(|(_, value)| value.trim())
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

    #[test]
    fn run_of_a_server_is_the_id_that_it_shows() {
        let id = "b1946ac92492d2347c6235b4d2611184f0a1c2d3";
        let info =
            |id: &str| format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{id}\r\ntcp_port:1\r\n");
        assert_eq!(run_id(&info(id)), Some(id));
        for none in [info("0000"), info("0"), info(""), "# Server".to_owned()] {
            assert_eq!(run_id(&none), None, "{none}");
        }
    }

    #[test]
    fn policies_evict_only_below_a_memory_limit() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:0B\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        assert_eq!(
            policy_of_eviction(&info(1_000, "allkeys-lru")),
            Some("allkeys-lru")
        );
        assert_eq!(policy_of_eviction(&info(1_000, "noeviction")), None);
        assert_eq!(policy_of_eviction(&info(0, "allkeys-lru")), None);
        assert_eq!(policy_of_eviction("# Memory"), None);
    }
}

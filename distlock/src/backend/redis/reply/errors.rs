//! What the errors of the server and of the driver mean.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::backend::{Fault, cause};
use crate::error::Cause;

/// Whether the server does not know the script.
pub(crate) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// What a node of a cluster says of a command that it does not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Another node has the slot. The text names both.
    Moved(String),
    /// Another node may have the keys, because the slot is on its way there. The text names both.
    Ask(String),
    /// The slot is on its way, and the keys of the command are on both nodes.
    TryAgain,
    /// The keys of the command are in several slots, so no node carries it out. A client of a single server hears that of a
    /// cluster behind a proxy. A client of a cluster never sends such a command.
    Nowhere,
}

/// Whether the node sends the command elsewhere.
pub(crate) fn elsewhere(error: &RedisError) -> Option<Elsewhere> {
    let ErrorKind::Server(kind) = error.kind() else {
        return None;
    };
    let text = || error.detail().unwrap_or_default().to_owned();
    match kind {
        ServerErrorKind::Moved => Some(Elsewhere::Moved(text())),
        ServerErrorKind::Ask => Some(Elsewhere::Ask(text())),
        ServerErrorKind::TryAgain => Some(Elsewhere::TryAgain),
        ServerErrorKind::CrossSlot => Some(Elsewhere::Nowhere),
        _ => None,
    }
}

/// Whether the error means that the connection cannot be used any more.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    // A demoted master keeps answering READONLY. Only a new connection, with a new look-up of the host name, may lead
    // to the current master.
    let text = || error.to_string();
    error.is_unrecoverable_error()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || is_readonly_in_script(&text())
        || is_wait_at_replica(&text())
}

/// Servers before version 7 put the error that a script got into a longer text.
fn is_readonly_in_script(text: &str) -> bool {
    text.contains(" -READONLY ")
}

/// The server carries out WAIT only while it is a master. The error has no code of its own.
fn is_wait_at_replica(text: &str) -> bool {
    text.contains("WAIT cannot be used with replica")
}

/// Whether a server refuses a command in words that this crate does not know: a quota, a limit of a hosted server. An error
/// from inside of a script that runs is none.
pub(crate) fn is_unknown_refusal(error: &RedisError) -> bool {
    let text = error.to_string();
    let is_known = [
        "user_script",
        "script: ",
        "call to f_",
        "nknown command",
        "nknown subcommand",
    ]
    .iter()
    .any(|known| text.contains(known));
    let kind = error.kind();
    let of_server =
        kind == ErrorKind::Server(ServerErrorKind::ResponseError) || kind == ErrorKind::Extension;
    let code = error.code().unwrap_or_default();
    of_server && !is_known && matches!(meaning(code, &text), Meaning::Other)
}

/// A number for the cause of a refusal in a script, below 8: a right that is missing, a command that is, or something else.
pub(crate) fn cause_of_refusal(text: &str) -> u32 {
    let code = text.split(' ').next().unwrap_or_default();
    match meaning(code, text) {
        Meaning::Denied => 0,
        _ if text.contains("nknown") => 1,
        _ => 2,
    }
}

/// What an error of the driver or the server means for the verb that got it.
pub(crate) fn fault(error: RedisError) -> Fault {
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
        _ => match meaning(&code, &text) {
            Meaning::NoCommand => Fault::Protocol(no_command(&text)),
            Meaning::Undeclared => Fault::Protocol(undeclared(&text)),
            Meaning::WrongType => Fault::WrongType,
            Meaning::Denied => Fault::Denied(cause),
            Meaning::NotNow => Fault::NotNow(cause),
            Meaning::Unknown => Fault::Unknown(cause),
            Meaning::Other => Fault::Protocol(cause),
        },
    }
}

/// The server does not say which command it is.
fn no_command(text: &str) -> Cause {
    cause(format!(
        "the server does not know a command of this lock's script, which may have executed the commands before it; remove \
         `rename-command` from the server's configuration ({text})"
    ))
}

/// The engine does not know which keys a script will use, and has refused one.
fn undeclared(text: &str) -> Cause {
    cause(format!(
        "the server refuses keys that a script does not declare, and read/write locks need them; start Dragonfly with \
         `--default_lua_flags=allow-undeclared-keys` ({text})"
    ))
}

enum Meaning {
    NoCommand,
    /// A key that the script does not declare is refused. Nothing was written.
    Undeclared,
    WrongType,
    Denied,
    NotNow,
    Unknown,
    Other,
}

/// The meaning of an error code that the driver has no name for. Servers before version 7 put the error that a script
/// got into a longer text, so the code is looked for there as well.
fn meaning(code: &str, text: &str) -> Meaning {
    let is = |what: &str| {
        let before = [' ', '-'];
        let longer = before.map(|before| text.contains(&format!("{before}{what} ")));
        code == what || longer.contains(&true)
    };
    if text.contains("nknown") && text.contains("command called from") {
        Meaning::NoCommand
    } else if text.contains("undeclared key") {
        Meaning::Undeclared
    } else if text.contains("access a non local key") || text.contains("while the cluster is down")
    {
        // In mid-script: a key that the script does not declare has moved to another node already, or other masters are
        // gone. The script may have written before, and states what is wanted, so it can be repeated.
        Meaning::Unknown
    } else if is("WRONGTYPE") {
        Meaning::WrongType
    } else if ["NOAUTH", "WRONGPASS", "NOPERM"].into_iter().any(is)
        || text.contains("user executing the script can't")
        // Redis 7.2 and later, and Valkey.
        || text.contains("ACL failure in script")
    {
        Meaning::Denied
    } else if [
        "OOM",
        "NOREPLICAS",
        "MISCONF",
        "BUSY",
        "UNBLOCKED",
        "READONLY",
    ]
    .into_iter()
    .any(is)
        || text.contains("max number of clients")
        || is_wait_at_replica(text)
    {
        Meaning::NotNow
    } else {
        Meaning::Other
    }
}

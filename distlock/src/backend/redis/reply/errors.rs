//! What the errors of the server and of the driver mean.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::backend::{Fault, cause};
use crate::error::Cause;

/// Whether the server does not know the script.
pub(crate) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The answer of a cluster node to a command that it does not execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Another node has the slot. The text names both.
    Moved(String),
    /// Another node may have the keys, because the slot is on its way there. The text names both.
    Ask(String),
    /// The slot is on its way, and the keys of the command are on both nodes.
    TryAgain,
    /// The keys of the command are in several slots, so no node executes it. A client of a single server gets this answer from a
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
    // A demoted master keeps answering READONLY, or MASTERDOWN if it serves no stale data. Only a new connection, with a new
    // look-up of the host name, may lead to the current master.
    let text = || error.to_string();
    error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
        || is_readonly_in_script(&text())
        || is_wait_at_replica(&text())
}

/// Whether the server loads its data, and carries out no command until then.
pub(crate) fn is_loading(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

/// Servers before version 7 put the error that a script got into a longer text.
fn is_readonly_in_script(text: &str) -> bool {
    text.contains(" -READONLY ")
}

/// The server executes WAIT only while it is a master. The error has no code.
fn is_wait_at_replica(text: &str) -> bool {
    text.contains("WAIT cannot be used with replica")
}

/// Whether a node of a cluster refuses a command because it does not reach enough of the other nodes, or because nobody has the slot.
pub(crate) fn lacks_the_others(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown)
        || error.to_string().contains("while the cluster is down")
}

/// Whether a server refuses a command with a text that this crate does not know, for example for a quota of a hosted server.
/// Errors from inside a running script do not count.
pub(crate) fn is_unknown_refusal(error: &RedisError) -> bool {
    let text = error.to_string();
    let is_known = [
        "user_script",
        "script: ",
        "call to f_",
        // Without the first letter, which servers write in both ways.
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

/// Whether the server would refuse this command again, and may carry out others. Without a login it refuses all, and a new connection
/// logs in again.
pub(crate) fn is_denial_of_this(fault: &Fault) -> bool {
    fault.is_final() && !fault.to_string().contains("NOAUTH")
}

/// Whether a denial is about the command, and not about a channel in it.
pub(crate) fn is_about_the_command(denial: &Fault) -> bool {
    let text = denial.to_string();
    text.contains("command") && !text.contains("channel")
}

/// A number below 8 for the cause of a refusal in a script: a missing right, an unknown command, or another cause.
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
            Fault::denied(cause)
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
            Meaning::WrongType => Fault::WrongType(None),
            Meaning::Denied => Fault::denied(cause),
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
        // The script was interrupted: an undeclared key has moved to another node, or other masters are gone. It may have
        // written before that. Scripts state the wanted result, so the command can be repeated.
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

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn errors_in_scripts_mean_the_same_in_the_words_of_each_version() {
        for denied in [
            "The user executing the script can't run this command or subcommand script: 2b6e, on @user_script:9.",
            "ACL failure in script: User shop has no permissions to run the 'exists' command script: 2b6e, on @user_script:9.",
            "Error running script (call to f_2b6e): @user_script:9: ACL failure in script: No permissions to access a key",
        ] {
            assert!(
                matches!(meaning("ERR", denied), Meaning::Denied),
                "{denied}"
            );
        }
        for not_now in [
            ("NOREPLICAS", "Not enough good replicas to write."),
            (
                "ERR",
                "Error running script (call to f_2b6e): @user_script:12: @user_script: 12: -NOREPLICAS Not enough good replicas to write.",
            ),
        ] {
            assert!(
                matches!(meaning(not_now.0, not_now.1), Meaning::NotNow),
                "{not_now:?}"
            );
        }
        let readonly = "Error running script (call to f_2b6e): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica.";
        assert!(matches!(meaning("ERR", readonly), Meaning::NotNow));
        assert!(is_readonly_in_script(readonly) && !is_readonly_in_script("READONLY"));
        let wait =
            "WAIT cannot be used with replica instances. Please also note that since Redis 4.0 ..";
        assert!(matches!(meaning("ERR", wait), Meaning::NotNow));
        assert!(matches!(meaning("ERR", "odd"), Meaning::Other));
    }

    #[test]
    fn refusals_of_a_cluster_have_kinds_of_their_own() {
        for (line, expected) in [
            ("MOVED 7 h:1", Some(Elsewhere::Moved("7 h:1".to_owned()))),
            ("ASK 7 h:1", Some(Elsewhere::Ask("7 h:1".to_owned()))),
            ("TRYAGAIN later", Some(Elsewhere::TryAgain)),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                Some(Elsewhere::Nowhere),
            ),
            ("ERR odd", None),
        ] {
            let line = format!("-{line}\r\n");
            let answer = redis::parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
            assert_eq!(elsewhere(&answer.unwrap_err()), expected, "{line}");
        }
    }
}

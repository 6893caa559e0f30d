//! Why a verb failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Cause, Error, Loss};
use crate::resource::key::Key;

/// Why a verb failed, and so whether it may have taken effect and whether it is worth repeating.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "some of these only a server can answer")
)]
pub enum Fault {
    /// The command may have been executed, or not, or may still be executed later.
    Unknown(Cause),
    /// The command was not executed. Repeating it may help.
    NotNow(Cause),
    /// The server does not allow this user to run the command. With the key, if the verb had several and one of them is why.
    Denied(Option<Key>, Cause),
    /// The server refused the login of a new connection, so the command was not sent. Repeating it may help, because a
    /// password may be about to change.
    LoginDenied(Cause),
    /// This crate cannot use the server.
    Unsupported {
        /// The address of the server.
        server: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The key holds a value of another type. With the key, if the verb had several.
    WrongType(Option<Key>),
    /// The semaphore was removed while an acquisition waited for its permits.
    NumberGone,
    /// The answer cannot be interpreted, or the script failed.
    Protocol(Cause),
}

impl Fault {
    /// Nothing was answered, and no error says why.
    pub(crate) fn no_answer() -> Self {
        Self::Unknown(cause("no answer"))
    }

    /// The server does not allow this user to run a command, and says no more.
    #[cfg(feature = "redis")]
    pub(crate) fn denied(cause: Cause) -> Self {
        Self::Denied(None, cause)
    }

    /// Whether repeating the verb is of no use.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Unknown(_) | Self::NotNow(_) | Self::LoginDenied(_)
        )
    }

    /// Whether the server is there and refuses this client's connections.
    #[cfg(feature = "redis")]
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::LoginDenied(_)) || self.is_final()
    }

    /// Whether the verb certainly had no effect.
    pub(crate) fn was_refused(&self) -> bool {
        // Not `Protocol`: a script may have failed after its first write.
        !matches!(self, Self::Unknown(_) | Self::Protocol(_))
    }

    /// The fault of a verb with this key. A key that it names already stays.
    pub(crate) fn of_key(self, key: &Key) -> Self {
        match self {
            Self::WrongType(None) => Self::WrongType(Some(key.clone())),
            other => other,
        }
    }

    /// Why, without what became of a command: for what is no command, such as a connection.
    pub(crate) fn why(&self) -> Why<'_> {
        Why(self)
    }

    /// The error that users get, after the verb was tried for `after`.
    pub(crate) fn into_error(self, key: &Key, after: Duration) -> Error {
        let key = key.text().to_owned();
        match self {
            Self::Unknown(cause) | Self::NotNow(cause) => Error::Unavailable { key, after, cause },
            Self::Denied(named, cause) => Error::Denied {
                key: named.map_or(key, |named| named.text().to_owned()),
                cause,
            },
            Self::LoginDenied(cause) => Error::Denied { key, cause },
            Self::Unsupported { server, reason } => Error::UnsupportedServer { server, reason },
            Self::WrongType(named) => Error::WrongType {
                key: named.map_or(key, |named| named.text().to_owned()),
            },
            Self::NumberGone => Error::lost(&key, Loss::NumberGone),
            Self::Protocol(cause) => Error::Protocol { key, cause },
        }
    }

    /// The error for what was asked of this server and not of a key, such as a connection, after it was tried for `after`.
    pub(crate) fn into_connection_error(self, server: String, after: Duration) -> Error {
        let cause = match self {
            Self::Denied(_, cause) | Self::LoginDenied(cause) => {
                return Error::LoginDenied { server, cause };
            }
            Self::Unsupported { server, reason } => {
                return Error::UnsupportedServer { server, reason };
            }
            Self::Unknown(cause) | Self::NotNow(cause) | Self::Protocol(cause) => cause,
            // Faults of keys. Nothing was asked of a key.
            fault @ (Self::WrongType(_) | Self::NumberGone) => cause(fault.to_string()),
        };
        Error::Unreachable {
            server,
            after,
            cause,
        }
    }
}

/// What the text of a fault begins with if its command had no effect.
const NOT_EXECUTED: &str = "not executed: ";

/// What it begins with if nobody knows.
const UNKNOWN: &str = "outcome unknown: ";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(cause) => write!(f, "{UNKNOWN}{cause}"),
            Self::NotNow(cause) => write!(f, "{NOT_EXECUTED}{cause}"),
            Self::Denied(_, cause) => write!(f, "denied: {cause}"),
            Self::LoginDenied(cause) => write!(f, "login denied: {cause}"),
            Self::Unsupported { reason, .. } => f.write_str(reason),
            Self::WrongType(_) => f.write_str("the key holds a value of another type"),
            Self::NumberGone => f.write_str("the semaphore is gone"),
            Self::Protocol(cause) => write!(f, "unexpected answer: {cause}"),
        }
    }
}

/// Why something other than a command failed.
#[derive(Clone, Copy)]
pub(crate) struct Why<'a>(&'a Fault);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Unknown(cause) | Fault::NotNow(cause) => cause.fmt(f),
            fault => fault.fmt(f),
        }
    }
}

/// A cause that is only a text. It may have the fault of one server or of an earlier attempt in it, whose outcome is not that of
/// the whole.
pub fn cause(text: impl Into<String>) -> Cause {
    let text = text.into().replace(NOT_EXECUTED, "").replace(UNKNOWN, "");
    let boxed: Box<dyn std::error::Error + Send + Sync> = text.into();
    Arc::from(boxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_of_faults_says_once_what_became_of_the_command() {
        let one = Fault::NotNow(cause("refused"));
        let other = Fault::Unknown(cause("no answer"));
        let all = Fault::NotNow(cause(format!("server a: {one}; server b: {other}")));
        let told = "not executed: server a: refused; server b: no answer";
        assert_eq!(all.to_string(), told);
        assert_eq!(all.why().to_string(), told.replace("not executed: ", ""));
        let denied = Fault::LoginDenied(cause("wrong password"));
        assert_eq!(denied.why().to_string(), denied.to_string());
        let key = Key::new("", "k").unwrap();
        let error = all.into_error(&key, Duration::from_secs(1)).to_string();
        assert!(
            error.ends_with("asked for \"k\" for 1s: server a: refused; server b: no answer"),
            "{error}"
        );
    }
}

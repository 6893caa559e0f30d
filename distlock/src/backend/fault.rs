//! Why a verb failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Cause, Error};
use crate::key::Key;
use crate::kind::Kind;

/// Why a verb failed.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "what only a server can answer")
)]
pub enum Fault {
    /// It may have been carried out, or not, or may still be.
    Unknown(Cause),
    /// It was not carried out, and may be tried again.
    NotNow(Cause),
    /// The server refuses it to this user.
    Denied(Cause),
    /// The key holds something else.
    WrongType,
    /// The answer cannot be understood, or the script is at fault.
    Protocol(Cause),
}

impl Fault {
    /// Will trying again not help?
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::NotNow(_))
    }

    /// Is it certain that nothing was carried out?
    pub(crate) fn was_refused(&self) -> bool {
        matches!(self, Self::NotNow(_) | Self::Denied(_) | Self::WrongType)
    }

    /// As users see it, after trying for `after`.
    pub(crate) fn into_error(self, key: &Key, after: Duration) -> Error {
        let key = key.text().to_owned();
        match self {
            Self::Unknown(cause) | Self::NotNow(cause) => Error::Unavailable { key, after, cause },
            Self::Denied(cause) => Error::Denied { key, cause },
            Self::WrongType => Error::WrongType { key },
            Self::Protocol(cause) => Error::Protocol { key, cause },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(cause) => write!(f, "outcome unknown: {cause}"),
            Self::NotNow(cause) => write!(f, "not carried out: {cause}"),
            Self::Denied(cause) => write!(f, "denied: {cause}"),
            Self::WrongType => f.write_str("the key holds another type of value"),
            Self::Protocol(cause) => write!(f, "unexpected answer: {cause}"),
        }
    }
}

/// The answer to a verb that a kind does not have.
pub(crate) fn unsupported(kind: Kind, verb: &str) -> Fault {
    Fault::Protocol(cause(format!("a {kind:?} cannot {verb}")))
}

/// A cause that is only a text.
pub fn cause(text: impl Into<String>) -> Cause {
    let boxed: Box<dyn std::error::Error + Send + Sync> = text.into().into();
    Arc::from(boxed)
}

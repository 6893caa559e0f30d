//! What a try to connect is waiting for, for the text of one that takes too long.

use std::fmt;
use std::time::Duration;

use crate::backend::redis::connection::addresses::Address;
use crate::backend::{Fault, cause};
use crate::error::show;

/// What a try to connect is waiting for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// The server, or it is not begun.
    #[default]
    Connection,
    /// The addresses of a name.
    LookUp(Address),
    /// The function that gives the user and the password.
    Credentials,
    /// The function that gives certificates.
    Certificates,
}

impl Step {
    /// The fault of a try that has not succeeded within this time.
    pub(crate) fn unfinished(&self, within: Duration) -> Fault {
        Fault::NotNow(cause(format!(
            "no connection within {}{self}",
            show(within)
        )))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => Ok(()),
            Self::LookUp(address) => write!(
                f,
                ": the look-up of the name in `{address}` has not finished; it needs a free thread of tokio's blocking pool, \
                 and the system's resolver"
            ),
            Self::Credentials => {
                f.write_str(": the function that gives the user and the password has not finished")
            }
            Self::Certificates => {
                f.write_str(": the function that gives certificates has not finished")
            }
        }
    }
}

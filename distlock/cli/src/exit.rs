//! How the program ends: its exit statuses, and the errors that lead to them.

use std::fmt;
use std::process::ExitCode;

use distlock::Error;

/// Exit statuses that mean the same in every command. 64 to 78 are those of `sysexits.h`; no shell and no common program
/// uses 79.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The answer is no: nobody holds the lock, nothing was released, or `doctor` has found something bad.
    No = 1,
    /// The command line, the key or the URL is wrong.
    Usage = 64,
    /// The lock server did not answer.
    Unavailable = 69,
    /// The server gave an answer that cannot be understood, or something else failed that should not.
    Software = 70,
    /// The lock was still taken when the wait was over.
    Busy = 75,
    /// The server refuses the user, its password or one of its commands.
    Denied = 77,
    /// The server cannot be used for locks.
    Unsupported = 78,
    /// The lock was lost while the command ran.
    Lost = 79,
    /// The command exists and cannot be run, as in a shell.
    CannotRun = 126,
    /// There is no such command, as in a shell.
    NotFound = 127,
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The status for an error of the library.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Denied { .. } | Error::LoginDenied { .. } => Self::Denied,
            Error::UnsupportedServer { .. } => Self::Unsupported,
            Error::Protocol { .. } | Error::WrongType { .. } => Self::Software,
            error if error.is_busy() || error.is_overloaded() => Self::Busy,
            error if error.is_unavailable() => Self::Unavailable,
            error if error.is_lost() => Self::Lost,
            _ => Self::Usage,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

/// Why a command of this program could not do its work.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) status: Status,
    message: String,
}

impl Failed {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { status, message }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Status::Usage, message)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::new(Status::of(&error), error)
    }
}

//! How the program ends: its exit statuses, and the errors that lead to them.

use std::fmt;
use std::process::ExitCode;

use distlock::{Error, Settings};
use serde_json::json;

use crate::output::note;
use crate::settings::option_of;
use crate::terminal;

/// Exit statuses that mean the same in every command. 64 to 78 are those of `sysexits.h`; no shell and no common program
/// uses 79.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The answer is no: nobody holds the lock, nothing was released because nobody or another holder had it, or `doctor` has
    /// found something bad.
    No = 1,
    /// The command line, the key or the URL is wrong.
    Usage = 64,
    /// The lock server did not answer, or lost the lock before the command was started.
    Unavailable = 69,
    /// The server gave an answer that cannot be understood, or something else failed that should not.
    Software = 70,
    /// The lock was still taken when the wait was over.
    Busy = 75,
    /// The server refuses the user, its password or one of its commands.
    Denied = 77,
    /// The server cannot be used for locks.
    Unsupported = 78,
    /// The lock was lost while the command ran, or the command was ended because it had held the lock for too long.
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

    /// The word for it in JSON.
    fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Usage => "usage",
            Self::Unavailable => "unavailable",
            Self::Software => "failed",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Lost => "lost",
            Self::CannotRun => "cannot_run",
            Self::NotFound => "not_found",
        }
    }

    /// The status for an error of the library.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Denied { .. } | Error::LoginDenied { .. } => Self::Denied,
            Error::UnsupportedServer { .. } => Self::Unsupported,
            Error::Protocol { .. } | Error::WrongType { .. } => Self::Software,
            error if error.is_held_by_another() || error.is_overloaded() => Self::Busy,
            // If it is busy and nobody is known to hold the lock, the server had not answered.
            error if error.is_unavailable() || error.is_busy() => Self::Unavailable,
            error if error.is_lost() => Self::Lost,
            _ => Self::Usage,
        }
    }
}

/// Why a command of this program could not do its work.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) status: Status,
    /// The exit status, if it is not that of `status`.
    code: Option<u8>,
    message: String,
}

impl Failed {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self {
            status,
            code: None,
            message,
        }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Status::Usage, message)
    }

    /// The same with this exit status, if the lock was taken.
    pub(crate) fn if_busy(mut self, code: u8) -> Self {
        if self.status == Status::Busy {
            self.code = Some(code);
        }
        self
    }

    /// The same for a loss before the command was started: the status of a loss would say that the command had run.
    pub(crate) fn before_the_start(mut self) -> Self {
        if self.status == Status::Lost {
            self.status = Status::Unavailable;
        }
        self
    }

    /// The same with another status.
    pub(crate) fn with(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// The same with more to say.
    pub(crate) fn and(mut self, more: impl fmt::Display) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Writes it to stderr, as text or as a line of JSON. Returns the exit status.
    pub(crate) fn told(&self, is_json: bool) -> ExitCode {
        let code = self.code.unwrap_or(self.status.code());
        if is_json {
            let outcome = self.status.word();
            let message = &self.message;
            let line = json!({ "outcome": outcome, "status": code, "message": message });
            note(format_args!("{line}"));
        } else {
            let name = terminal::stderr().red("distlock:");
            note(format_args!("{name} {self}"));
        }
        ExitCode::from(code)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::new(Status::of(&error), by_options(&error))
    }
}

/// The text of an error, with the options of this program in place of the library's settings. A URL has the words of the settings.
pub(crate) fn by_options(error: &Error) -> String {
    let text = error
        .to_string()
        // No text says these.
        .replace(" (`Duration::MAX` in code)", "")
        .replace(", and see `connect_lazy`", "");
    if let Error::InvalidUrl { .. } = error {
        return text;
    }
    // What the library takes as bytes, this program takes as files.
    let text = text
        .replace("tls_ca_pem", "tls_ca_file")
        .replace("tls_client_pem", "tls_client_cert_file");
    let words = Settings::words().iter().map(|row| row.word);
    words.chain(["hold_at_least"]).fold(text, |text, word| {
        let option = format!("--{}", option_of(word));
        text.replace(&format!("`{word}`"), &option)
            .replace(&format!("setting {word} "), &format!("{option} "))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock::Blocker;
    use distlock::testing::errors;

    use super::*;

    #[test]
    fn wait_that_ended_before_the_server_had_answered_is_not_busy() {
        let waited = Duration::from_millis(200);
        let status = |blocker| Status::of(&errors::timeout("job", waited, blocker));
        assert_eq!(status(Blocker::Unanswered), Status::Unavailable);
        assert_eq!(status(Blocker::Queue(None)), Status::Busy);
    }
}

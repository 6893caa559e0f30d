//! How a `run` ended, for stderr: stdout is the command's.

use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use distlock::Error;
use rustix::process::Signal;
use serde::Serialize;

use super::command::Ended;
use crate::args::Run;
use crate::exit::{Status, by_options};
use crate::output::{names, note};

/// What `--json` writes to stderr as the last line.
#[derive(Serialize)]
pub(super) struct Outcome<'a> {
    keys: &'a [String],
    /// `exited`, `signalled`, `lost`, `held_too_long` or `interrupted`.
    outcome: &'a str,
    /// The exit status of this program.
    status: u8,
    /// The exit status of the command, if it exited.
    command_status: Option<i32>,
    /// The signal that ended the command, or the wait for it or for the lock, or came before the start.
    signal: Option<i32>,
    waited_ms: u64,
    held_ms: u64,
    /// Whether the server has confirmed the release. `None` if nothing was held.
    released: Option<bool>,
    /// When the lock is free at the latest, if this process has it to give.
    free_within_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What became of the command, if it was started.
    #[serde(skip)]
    command: Option<String>,
}

impl<'a> Outcome<'a> {
    fn new(args: &'a Run, outcome: &'a str, status: u8, waited: Duration) -> Self {
        Self {
            keys: &args.keys,
            outcome,
            status,
            command_status: None,
            signal: None,
            waited_ms: millis(waited),
            held_ms: 0,
            released: None,
            free_within_ms: None,
            token: None,
            message: None,
            command: None,
        }
    }

    /// A signal has come before the command was started. `when` says in words what it has ended.
    pub(super) fn interrupted(
        args: &'a Run,
        signal: Signal,
        when: impl Display,
        waited: Duration,
    ) -> Self {
        let signal = signal.as_raw();
        Self {
            signal: Some(signal),
            message: Some(format!("interrupted {when}")),
            ..Self::new(args, "interrupted", by_signal(signal), waited)
        }
    }

    /// The command has ended, or still runs, or was not started.
    pub(super) fn ended(args: &'a Run, ended: Ended, waited: Duration, held: Duration) -> Self {
        match ended {
            Ended::NotStarted(signal) => {
                let when = "before the command was started";
                Self {
                    held_ms: millis(held),
                    ..Self::interrupted(args, signal, when, waited)
                }
            }
            Ended::Command { status, is_overdue } => {
                let command = format!("the command ended with {status}");
                let outcome = match status.signal() {
                    Some(_) => "signalled",
                    None => "exited",
                };
                let outcome = Self {
                    command_status: status.code(),
                    signal: status.signal(),
                    ..Self::new(args, outcome, status_of(status), waited)
                };
                outcome.of_command(args, command, is_overdue, held)
            }
            Ended::StillRuns { signal, is_overdue } => {
                let signal = signal.as_raw();
                let command = format!(
                    "the command still runs, and signal {signal} has ended the wait for it"
                );
                let outcome = Self {
                    signal: Some(signal),
                    ..Self::new(args, "lost", Status::Lost.code(), waited)
                };
                outcome.of_command(args, command, is_overdue, held)
            }
        }
    }

    fn of_command(self, args: &Run, command: String, is_overdue: bool, held: Duration) -> Self {
        let held_ms = millis(held);
        if !is_overdue {
            return Self {
                held_ms,
                command: Some(command),
                ..self
            };
        }
        let names = names(&args.keys);
        let most = humantime::format_duration(args.max_hold.unwrap_or_default());
        let message =
            format!("the lock {names} was held for {most}, the time of --max-hold; {command}");
        Self {
            outcome: "held_too_long",
            status: Status::Lost.code(),
            held_ms,
            message: Some(message),
            command: Some(command),
            ..self
        }
    }

    pub(super) fn with_token(self, token: Option<u64>) -> Self {
        Self { token, ..self }
    }

    /// The lock was released, or not.
    pub(super) fn released(
        mut self,
        args: &Run,
        lease: Duration,
        released: &Result<(), NotReleased>,
    ) -> Self {
        self.released = Some(released.is_ok());
        match released {
            Ok(()) => {
                let rest = args
                    .hold_at_least
                    .map(|least| millis(least).saturating_sub(self.held_ms));
                self.free_within_ms = Some(rest.unwrap_or(0));
            }
            Err(NotReleased::Failed(error)) if error.is_lost() => {
                // Without a command nothing was done without the lock.
                if let Some(command) = &self.command {
                    self.outcome = "lost";
                    self.status = Status::Lost.code();
                    let lost = by_options(error);
                    self.message = Some(format!("{lost}; {command}"));
                }
            }
            // What the command did was done under the lock.
            Err(why) => {
                let within = free_within(args, lease);
                self.free_within_ms = Some(millis(within));
                let before = self.message.take();
                let before = before.unwrap_or_else(|| "the command has ended".to_owned());
                self.message = Some(format!("{before}, {}", why.text(args, lease)));
            }
        }
        self
    }

    /// Writes the outcome to stderr. Returns the exit status.
    pub(super) fn told(&self, json: bool) -> u8 {
        match &self.message {
            _ if json => {
                // A map of numbers and text has a form in JSON.
                let line = serde_json::to_string(self).unwrap_or_default();
                // The command may have left a line without an end, such as of its progress.
                let start = self.command.as_ref().map_or("", |_| "\n");
                note(format_args!("{start}{line}"));
            }
            Some(message) => note(format_args!("distlock: {message}")),
            None => {}
        }
        self.status
    }
}

/// Why a release was not confirmed.
#[derive(Debug)]
pub(super) enum NotReleased {
    Failed(Error),
    /// A signal has ended the wait for the server.
    Left(Signal),
}

impl NotReleased {
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_lost())
    }

    /// That the release was not confirmed, and for how long the key may stay.
    pub(super) fn text(&self, args: &Run, lease: Duration) -> String {
        let names = names(&args.keys);
        let within = humantime::format_duration(free_within(args, lease));
        let why = match self {
            Self::Failed(error) => by_options(error),
            Self::Left(signal) => format!(
                "signal {} has ended the wait for the server's answer",
                signal.as_raw()
            ),
        };
        format!(
            "released: false: {names} may stay taken for up to {within} from now, until the lease ends: {why}"
        )
    }
}

/// The rest of a lease that was renewed just now, since the answer to the last renewal may be what got lost.
fn free_within(args: &Run, lease: Duration) -> Duration {
    lease.max(args.hold_at_least.unwrap_or_default())
}

/// The exit status that a shell would show for a command that ended so.
fn status_of(ended: ExitStatus) -> u8 {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => u8::MAX,
    }
}

fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

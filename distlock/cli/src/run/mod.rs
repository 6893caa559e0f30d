//! `run`: a command under a lock.

mod child;

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use distlock::{Client, Error, Guard, LockSource};
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use self::child::Child;
pub(crate) use self::child::become_command;
use crate::args::Run;
use crate::exit::{Failed, Status};
use crate::signals::Signals;

/// How long the end of an acquisition that was given up may take to reach the server. Later its lease frees the lock.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What `--json` writes to stderr as the last line.
#[derive(Serialize)]
struct Outcome<'a> {
    key: &'a str,
    /// `exited`, `signalled`, `lost` or `interrupted`.
    outcome: &'a str,
    /// The exit status of this program.
    status: u8,
    /// The exit status of the command, if it exited.
    command_status: Option<i32>,
    /// The signal that ended the command, or the wait.
    signal: Option<i32>,
    waited_ms: u64,
    held_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Runs the command under the lock. Returns the exit status of this program.
pub(crate) async fn run(client: &Client, args: &Run, json: bool) -> Result<u8, Failed> {
    // Before anything is held: from here on no signal ends this process.
    let mut signals = Signals::listen().map_err(|error| Failed::new(Status::Software, error))?;
    let started = Instant::now();
    let guard = tokio::select! {
        acquired = acquire(client, args) => acquired?,
        signal = signals.next() => {
            // What was asked for, and may yet be granted, is given back.
            let _by_its_lease = client.close(CLOSE_TIMEOUT).await;
            let outcome = Outcome {
                signal: Some(signal.as_raw()),
                ..Outcome::new(args, "interrupted", by_signal(signal.as_raw()), started.elapsed())
            };
            return Ok(outcome.told(json, "interrupted while it waited for"));
        }
    };
    let waited = started.elapsed();
    let token = guard.token();
    let held = Instant::now();
    let ended = match command(args, &guard, &mut signals).await {
        Ok(ended) => ended,
        Err(failed) => {
            let _by_its_lease = guard.release().await;
            return Err(failed);
        }
    };
    let released = guard.release().await;
    let mut outcome = Outcome::new(args, "exited", status_of(ended), waited);
    (outcome.command_status, outcome.signal) = (ended.code(), ended.signal());
    (outcome.held_ms, outcome.token) = (millis(held.elapsed()), token);
    if outcome.signal.is_some() {
        outcome.outcome = "signalled";
    }
    match released {
        Ok(()) => {}
        Err(error) if error.is_lost() => {
            outcome.outcome = "lost";
            outcome.status = Status::Lost.code();
            outcome.message = Some(format!("{error}; the command ended with {ended}"));
        }
        // What the command did was done under the lock.
        Err(error) => {
            outcome.message = Some(format!(
                "the command has ended, and releasing failed: {error}"
            ))
        }
    }
    Ok(outcome.told(json, ""))
}

/// The variable in which a command finds the key of the lock around it.
const KEY_VARIABLE: &str = "DISTLOCK_KEY";

/// After this time a wait for the key of a `run` around this one is told.
const NESTED_WAIT: Duration = Duration::from_secs(1);

/// Acquires the lock. A wait that seems to be for the `run` around this one is told on stderr, because it may never end.
async fn acquire(client: &Client, args: &Run) -> Result<Guard, Error> {
    let mut acquiring = pin!(acquire_without_a_word(client, args));
    if std::env::var_os(KEY_VARIABLE).is_some_and(|around| args.key.as_str() == around) {
        tokio::select! {
            acquired = &mut acquiring => return acquired,
            () = tokio::time::sleep(NESTED_WAIT) => eprintln!(
                "distlock: still waiting for {:?}. {KEY_VARIABLE} says that this command was started by a `distlock run` of \
                 the same key. If that one still runs and uses the same server, this wait cannot succeed: leave out the inner \
                 `distlock run`, or give it another key.",
                args.key
            ),
        }
    }
    acquiring.await
}

async fn acquire_without_a_word(client: &Client, args: &Run) -> Result<Guard, Error> {
    let mut acquire = LockSource::from(client).acquire(args.kind.into(), [&args.key]);
    if let Some(wait) = args.wait {
        acquire = acquire.wait(wait);
    }
    if let Some(time) = args.hold_at_least {
        acquire = acquire.hold_at_least(time);
    }
    if let Some(time) = args.max_hold {
        acquire = acquire.max_hold(time);
    }
    acquire.await
}

/// Runs the command until it has ended, by itself or because the lock is lost.
async fn command(args: &Run, guard: &Guard, signals: &mut Signals) -> Result<ExitStatus, Failed> {
    let variables = [
        (KEY_VARIABLE, Some(args.key.clone())),
        (
            "DISTLOCK_TOKEN",
            guard.token().map(|token| token.to_string()),
        ),
    ];
    let mut child = Child::start(&args.command, &variables).map_err(|error| {
        let program = args.command.first().map(|name| name.display().to_string());
        cannot_run(&program.unwrap_or_default(), &error)
    })?;
    let mut lost = pin!(guard.lost());
    let mut kill_at = None;
    let mut is_killed = false;
    loop {
        tokio::select! {
            ended = child.ended() => {
                if let Some(kill_at) = kill_at {
                    child.end_group(kill_at).await;
                }
                return ended.map_err(|error| Failed::new(Status::Software, error));
            }
            () = &mut lost, if kill_at.is_none() => {
                eprintln!("distlock: the lock {:?} is lost: the command gets SIGTERM", args.key);
                child.signal(Signal::TERM);
                // A command that is stopped would not see it.
                child.signal(Signal::CONT);
                kill_at = Some(Instant::now() + args.kill_after);
            }
            () = at(kill_at), if !is_killed => {
                eprintln!("distlock: the command still runs after {:?}: it gets SIGKILL", args.kill_after);
                child.signal(Signal::KILL);
                is_killed = true;
            }
            signal = signals.next() => child.pass_on(signal),
        }
    }
}

/// Completes at this time, if there is one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The error and the exit status of a command that cannot be started.
pub(crate) fn cannot_run(program: &str, error: &std::io::Error) -> Failed {
    let status = match error.kind() {
        ErrorKind::NotFound => Status::NotFound,
        _ => Status::CannotRun,
    };
    Failed::new(status, format!("cannot run {program:?}: {error}"))
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

impl<'a> Outcome<'a> {
    fn new(args: &'a Run, outcome: &'a str, status: u8, waited: Duration) -> Self {
        Self {
            key: &args.key,
            outcome,
            status,
            command_status: None,
            signal: None,
            waited_ms: millis(waited),
            held_ms: 0,
            token: None,
            message: None,
        }
    }

    /// Writes the outcome to stderr, since stdout is the command's. Returns the exit status.
    fn told(&self, json: bool, otherwise: &str) -> u8 {
        match &self.message {
            _ if json => {
                // A map of numbers and text has a form in JSON.
                eprintln!("{}", serde_json::to_string(self).unwrap_or_default());
            }
            Some(message) => eprintln!("distlock: {message}"),
            None if otherwise.is_empty() => {}
            None => eprintln!("distlock: {otherwise} {:?}", self.key),
        }
        self.status
    }
}

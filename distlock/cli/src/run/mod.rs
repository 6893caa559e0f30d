//! `run`: a command under a lock.

mod child;
mod group;
mod held;
mod outcome;

use std::io::ErrorKind;
use std::process::ExitStatus;
use std::time::Duration;

use distlock::{Client, LockSource};
use futures_util::FutureExt;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use self::child::Child;
pub(crate) use self::child::become_command;
use self::held::{Held, KEY_VARIABLE};
use self::outcome::{NotReleased, Outcome, names};
use crate::args::Run;
use crate::exit::{Failed, Status};
use crate::signals::Signals;

/// How long the end of what is given up may take to reach the server. Later its lease frees the lock.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command under the lock. Returns the exit status of this program.
pub(crate) async fn run(client: &Client, args: &Run, json: bool) -> Result<u8, Failed> {
    // Before anything is held: from here on no signal ends this process.
    let mut signals = Signals::listen().map_err(|error| Failed::new(Status::Software, error))?;
    let lease = LockSource::from(client).watchdog_timeout();
    let started = Instant::now();
    let held = tokio::select! {
        acquired = Held::acquire(client, args) => {
            acquired.map_err(|failed| failed.if_busy(args.busy_status))?
        }
        signal = signals.next() => {
            // What was asked for, and may yet be granted, is given back.
            let _by_its_lease = client.close(CLOSE_TIMEOUT).await;
            return Ok(Outcome::interrupted(args, signal.as_raw(), started.elapsed()).told(json));
        }
    };
    let waited = started.elapsed();
    let token = held.token();
    let since = Instant::now();
    let ended = command(args, &held, &mut signals, json).await;
    let held_for = since.elapsed();
    let released = tokio::select! {
        released = held.release() => released.map_err(NotReleased::Failed),
        signal = later_signal(&mut signals) => Err(NotReleased::Left(signal)),
    };
    let ended = match (ended, &released) {
        (Ok(ended), _) => ended,
        (Err(failed), Err(why)) if !why.is_lost() => {
            return Err(failed.and(why.text(args, lease)));
        }
        (Err(failed), _) => return Err(failed),
    };
    let outcome = Outcome::ended(args, ended, waited, held_for).with_token(token);
    Ok(outcome.released(args, lease, ended, &released).told(json))
}

/// The next signal after a moment. One that has just ended the command does not end the release as well.
async fn later_signal(signals: &mut Signals) -> Signal {
    sleep(CLOSE_TIMEOUT).await;
    while signals.next().now_or_never().is_some() {}
    signals.next().await
}

/// Runs the command until it has ended, by itself or because the lock is lost.
async fn command(
    args: &Run,
    held: &Held,
    signals: &mut Signals,
    json: bool,
) -> Result<ExitStatus, Failed> {
    let token = held.token().map(|token| token.to_string());
    let variables = [
        (KEY_VARIABLE, Some(args.keys.join("\n"))),
        ("DISTLOCK_TOKEN", token),
    ];
    let mut child = Child::start(&args.command, &variables, json).map_err(|error| {
        let program = args.command.first().map(|name| name.display().to_string());
        cannot_run(&program.unwrap_or_default(), &error)
    })?;
    let mut lost = held.lost();
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
                eprintln!("distlock: the lock {} is lost: the command gets SIGTERM", names(&args.keys));
                child.signal(Signal::TERM);
                // A command that is stopped would not see it.
                child.signal(Signal::CONT);
                kill_at = Some(Instant::now() + args.kill_after);
            }
            () = at(kill_at), if !is_killed => {
                let after = humantime::format_duration(args.kill_after);
                eprintln!("distlock: the command still runs after {after}: it gets SIGKILL");
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

//! The command while the lock is held: its start, the signals for it, and its end.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use rustix::process::Signal;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::bound::Bound;
use super::child::{Child, UNREACHED};
use super::held::{Held, KEY_VARIABLE};
use crate::args::Run;
use crate::exit::{Failed, Status};
use crate::output::{names, note};
use crate::signals::{Signals, is_passed_on};

/// What runs so long after a kill may not be signalled, or is in the hands of the kernel, such as of a server of files that does not
/// answer.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(1);

/// What became of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// A signal came before it was started.
    NotStarted(Signal),
    /// It has ended.
    Command {
        status: ExitStatus,
        /// Whether it was told to end because it had held the lock for as long as `--max-hold` allows.
        is_overdue: bool,
    },
    /// It still runs after a kill, and a signal has ended the wait for it.
    StillRuns {
        signal: Signal,
        /// As of a command that has ended.
        is_overdue: bool,
    },
}

/// Runs the command until it has ended: by itself, of a signal, because the lock is lost, or because the longest hold is over. If the
/// longest hold is over, or the command has died of a signal that is passed on, the lock stays held until its group has ended as well.
/// A signal ends the wait for what a kill has not ended. If a signal has come already, the command is not started.
pub(super) async fn command(
    args: &Run,
    held: &Held,
    longest: Option<&Bound>,
    signals: &mut Signals,
    json: bool,
) -> Result<Ended, Failed> {
    if let Some(signal) = arrived(signals).await {
        return Ok(Ended::NotStarted(signal));
    }
    let mut child = start(args, held, json)?;
    let mut lost = held.lost();
    let mut is_overdue = false;
    let mut kill_at = None;
    let mut is_killed = false;
    loop {
        tokio::select! {
            ended = child.ended() => {
                // A shell dies of a signal at once, while what it has started still handles the same signal.
                let died_of = ended.as_ref().ok().and_then(ExitStatusExt::signal);
                let is_told = died_of.is_some_and(is_passed_on);
                let is_held = is_overdue || kill_at.is_none();
                let kill_at = kill_at.or_else(|| is_told.then(|| Instant::now() + args.kill_after));
                if let Some(kill_at) = kill_at {
                    end_group(&mut child, kill_at, is_held, signals).await;
                }
                let status = ended.map_err(|error| Failed::new(Status::Software, error))?;
                return Ok(Ended::Command { status, is_overdue });
            }
            () = &mut lost, if kill_at.is_none() => {
                let names = names(&args.keys);
                kill_at = Some(terminate(&child, args, &format!("the lock {names} is lost")));
            }
            Some(()) = OptionFuture::from(longest.map(Bound::reached)), if kill_at.is_none() => {
                is_overdue = true;
                kill_at = Some(terminate(&child, args, "the time of --max-hold is over"));
            }
            Some(()) = OptionFuture::from(kill_at.map(sleep_until)), if !is_killed => {
                let outcome = outcome(child.signal(Signal::KILL), "gets SIGKILL");
                is_killed = true;
                let after = humantime::format_duration(args.kill_after);
                note(format_args!("distlock: the command still runs after {after}: it {outcome}"));
            }
            signal = signals.next() => {
                child.pass_on(signal);
                if is_killed && kill_at.is_some_and(is_unkillable) {
                    return Ok(Ended::StillRuns { signal, is_overdue });
                }
            }
        }
    }
}

/// Whether a command that was killed at this time, and still runs, may never end. From then on a signal ends the wait for it.
fn is_unkillable(killed_at: Instant) -> bool {
    Instant::now() >= killed_at + UNKILLABLE_AFTER
}

/// Ends what is left of the group of a command that has ended. While the lock is held, nothing of it is left to run: `is_held`.
async fn end_group(child: &mut Child, kill_at: Instant, is_held: bool, signals: &mut Signals) {
    loop {
        tokio::select! {
            () = child.group_ended(kill_at, is_held) => return,
            signal = signals.next() => {
                child.pass_on(signal);
                if is_unkillable(kill_at) {
                    return;
                }
            }
        }
    }
}

/// A signal that came after the grant. Passed on, it might reach the command before its program has begun, and a signal of the
/// terminal is not passed on at all.
async fn arrived(signals: &mut Signals) -> Option<Signal> {
    // The runtime looks for signals before it returns from here.
    yield_now().await;
    signals.next().now_or_never()
}

fn start(args: &Run, held: &Held, json: bool) -> Result<Child, Failed> {
    if held.lost().now_or_never().is_some() {
        let names = names(&args.keys);
        let text = format!("the lock {names} was lost before the command was started");
        return Err(Failed::new(Status::Unavailable, text));
    }
    let token = held.token().map(|token| token.to_string());
    let variables = [
        (KEY_VARIABLE, Some(args.keys.join("\n"))),
        ("DISTLOCK_TOKEN", token),
    ];
    Child::start(&args.command, &variables, json).map_err(|error| {
        let program = args.command.first().map(|name| name.display().to_string());
        cannot_run(&program.unwrap_or_default(), &error)
    })
}

/// Tells the command to end, and says why. Returns when it is killed.
fn terminate(child: &Child, args: &Run, why: &str) -> Instant {
    let outcome = outcome(child.signal(Signal::TERM), "gets SIGTERM");
    // A command that is stopped would not see it.
    child.signal(Signal::CONT);
    note(format_args!("distlock: {why}: the command {outcome}"));
    Instant::now() + args.kill_after
}

/// What becomes of a command to which a signal was sent.
fn outcome(is_allowed: bool, gets: &str) -> &str {
    if is_allowed { gets } else { UNREACHED }
}

/// The error and the exit status of a command that cannot be started.
pub(crate) fn cannot_run(program: &str, error: &std::io::Error) -> Failed {
    let status = match error.kind() {
        ErrorKind::NotFound => Status::NotFound,
        _ => Status::CannotRun,
    };
    Failed::new(status, format!("cannot run {program:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use distlock::Client;
    use rustix::process::{getpid, kill_process};
    use tokio::sync::Mutex;

    use super::*;
    use crate::args::{Cli, Command};

    /// A signal reaches all tests of this process.
    static SIGNALS: Mutex<()> = Mutex::const_new(());

    /// A `run` whose command would end with status 7.
    fn args() -> Run {
        let line = "distlock run job -- sh -c";
        let line = line.split(' ').chain(["exit 7"]);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_that_may_not_be_signalled_is_not_said_to_get_the_signal() {
        assert_eq!(outcome(true, "gets SIGTERM"), "gets SIGTERM");
        let outcome = outcome(false, "gets SIGTERM");
        assert!(outcome.contains("may not be signalled"), "{outcome}");
    }

    #[tokio::test]
    async fn lock_that_is_lost_before_the_start_has_no_command_and_not_the_status_of_a_loss() {
        let lock = Client::in_memory().lock("job");
        let guard = lock.acquire().lease(Duration::from_millis(1)).await;
        let guard = guard.unwrap();
        guard.lost().await;
        let held = Held::Lock(guard);
        let _alone = SIGNALS.lock().await;
        let mut signals = Signals::listen().unwrap();
        let failed = command(&args(), &held, None, &mut signals, false).await;
        assert_eq!(failed.unwrap_err().status, Status::Unavailable);
    }

    #[tokio::test]
    async fn signal_between_the_grant_and_the_start_is_found_and_the_command_is_not_started() {
        let lock = Client::in_memory().lock("job");
        let held = Held::Lock(lock.acquire().await.unwrap());
        let _alone = SIGNALS.lock().await;
        let mut signals = Signals::listen().unwrap();
        let mut others = Signals::listen().unwrap();
        kill_process(getpid(), Signal::USR1).unwrap();
        // When one has heard it, so have all.
        assert_eq!(others.next().await, Signal::USR1);
        let ended = command(&args(), &held, None, &mut signals, false).await;
        assert!(
            matches!(ended, Ok(Ended::NotStarted(Signal::USR1))),
            "{ended:?}"
        );
    }
}

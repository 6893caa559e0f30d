//! The command while the lock is held: its start, the signals for it, and its end.

use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use rustix::process::Signal;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::bound::Bound;
use super::child::{Child, UNREACHED};
use super::held::{Held, KEY_VARIABLE};
use crate::args::Run;
use crate::exit::{Failed, Status};
use crate::output::{names, note};
use crate::signals::Signals;

/// What runs so long after a kill may not be signalled, or is in the hands of the kernel, such as of a server of files that does not
/// answer.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(1);

/// How long until what else the command has started is looked for again: the kernel reports the end of the command alone. Each time this
/// takes twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What else a command has started, in words.
const REST: &str = "what the command has started";

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

/// Runs the command until it has ended: by itself, of a signal, because the lock is lost, or because the longest hold is over. Except in
/// the first case, what else it has started has ended as well, or was killed after a loss. A signal ends the wait for what a kill has not
/// ended. If a signal has come already, the command is not started.
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
    let child = started(signals, || start(args, held, json), Child::send).await?;
    let mut running = Running::new(args, child);
    let mut lost = held.lost();
    loop {
        tokio::select! {
            ended = running.child.ended(), if running.ended.is_none() => running.command_ended(ended),
            () = sleep(running.pause), if running.ended.is_some() => running.look_later(),
            () = &mut lost, if !running.is_lost => running.lock_lost(),
            Some(()) = OptionFuture::from(longest.map(Bound::reached)), if running.kill_at.is_none() => {
                running.is_overdue = true;
                running.terminate("the time of --max-hold is over");
            }
            Some(()) = OptionFuture::from(running.kill_at.map(sleep_until)), if !running.is_killed => running.kill(),
            signal = signals.next() => {
                running.pass_on(signal);
                if running.is_unkillable() {
                    let is_overdue = running.is_overdue;
                    return running.result().unwrap_or(Ok(Ended::StillRuns { signal, is_overdue }));
                }
            }
        }
        if running.is_over()
            && let Some(result) = running.result()
        {
            return result;
        }
    }
}

/// A command from its start to the end of all that is waited for.
struct Running<'a> {
    args: &'a Run,
    child: Child,
    /// How the command has ended. What else it has started, the rest, may still run.
    ended: Option<io::Result<ExitStatus>>,
    /// How long until the rest is looked for again.
    pause: Duration,
    is_lost: bool,
    /// Whether the time of `--max-hold` is over.
    is_overdue: bool,
    /// When what still runs is killed. Set when it is told to end.
    kill_at: Option<Instant>,
    is_killed: bool,
}

impl<'a> Running<'a> {
    fn new(args: &'a Run, child: Child) -> Self {
        Self {
            args,
            child,
            ended: None,
            pause: FIRST_PAUSE,
            is_lost: false,
            is_overdue: false,
            kill_at: None,
            is_killed: false,
        }
    }

    /// Whether nothing is left to wait for.
    fn is_over(&mut self) -> bool {
        let Some(ended) = &self.ended else {
            return false;
        };
        // A shell dies of a signal at once, while what it has started handles the same signal. A command that exits may leave something
        // behind that is to stay.
        let died = ended.as_ref().is_ok_and(|ended| ended.signal().is_some());
        let is_told = self.kill_at.is_some();
        // What a kill does not end would be waited for to keep others out, and after a loss nobody is kept out.
        let is_given_up = self.is_killed && self.is_lost;
        !(died || is_told) || is_given_up || !self.child.rest_runs(!self.is_killed)
    }

    /// How it has ended, if the command has.
    fn result(&mut self) -> Option<Result<Ended, Failed>> {
        let is_overdue = self.is_overdue;
        let ended = self.ended.take()?;
        Some(match ended {
            Ok(status) => Ok(Ended::Command { status, is_overdue }),
            Err(error) => Err(Failed::new(Status::Software, error)),
        })
    }

    /// The command has ended, and the rest may not have.
    fn command_ended(&mut self, ended: io::Result<ExitStatus>) {
        self.ended = Some(ended);
        // The rest may have another user.
        if self.is_killed && self.child.rest_runs(false) && !self.child.signal(Signal::KILL) {
            note(format_args!("distlock: {REST} {UNREACHED}"));
        }
    }

    /// The rest has run for a pause. It may run for hours, and each look reads the list of all processes, so the pauses
    /// grow. Most ends take a moment, and a longer one is told once.
    fn look_later(&mut self) {
        let is_long = self.pause < LONGEST_PAUSE && self.pause * 2 >= LONGEST_PAUSE;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let ended = self.ended.as_ref().and_then(|ended| ended.as_ref().ok());
        if let Some(signal) = ended.and_then(ExitStatus::signal)
            && is_long
            && self.kill_at.is_none()
            && !self.is_over()
        {
            let names = names(&self.args.keys);
            note(format_args!(
                "distlock: signal {signal} has ended the command: the lock {names} stays held until {REST} has ended"
            ));
        }
    }

    /// Passes a signal on. What a shell has started in the background ignores Ctrl-C. A second one, after the message that the rest
    /// keeps the lock, therefore tells the rest to end: nothing else at the terminal would end the wait for it.
    fn pass_on(&self, signal: Signal) {
        let is_late = self.ended.is_some() && self.pause >= LONGEST_PAUSE;
        if !self.child.pass_on(signal) && is_late {
            self.child.send(Signal::TERM);
        }
    }

    fn lock_lost(&mut self) {
        self.is_lost = true;
        if self.kill_at.is_none() {
            let names = names(&self.args.keys);
            self.terminate(&format!("the lock {names} is lost"));
        }
    }

    /// What still runs, in words.
    fn what(&self) -> &'static str {
        match self.ended {
            None => "the command",
            Some(_) => REST,
        }
    }

    /// Tells what runs to end, and says why. It has a time to do so.
    fn terminate(&mut self, why: &str) {
        let outcome = outcome(self.child.signal(Signal::TERM), "gets SIGTERM");
        // A command that is stopped would not see it.
        self.child.signal(Signal::CONT);
        note(format_args!("distlock: {why}: {} {outcome}", self.what()));
        self.kill_at = Some(Instant::now() + self.args.kill_after);
        self.pause = FIRST_PAUSE;
    }

    /// Kills what runs, and says so.
    fn kill(&mut self) {
        // The last look was a moment ago.
        if self.is_over() {
            return;
        }
        let outcome = outcome(self.child.signal(Signal::KILL), "gets SIGKILL");
        self.is_killed = true;
        self.pause = FIRST_PAUSE;
        let after = humantime::format_duration(self.args.kill_after);
        let what = self.what();
        note(format_args!(
            "distlock: {what} still runs after {after}: it {outcome}"
        ));
    }

    /// Whether it was killed a while ago, and may never end. From then on a signal ends the wait for it.
    fn is_unkillable(&self) -> bool {
        let is_late = |killed_at| Instant::now() >= killed_at + UNKILLABLE_AFTER;
        self.is_killed && self.kill_at.is_some_and(is_late)
    }
}

/// A signal that came after the grant. Passed on, it might reach the command before its program has begun, and a signal of the
/// terminal is not passed on at all.
async fn arrived(signals: &mut Signals) -> Option<Signal> {
    // The runtime looks for signals before it returns from here.
    yield_now().await;
    signals.next().now_or_never()
}

/// Starts the command, and sends it what came during the start. The terminal has sent that to this process, and to the command only if it
/// was there already. A command that was there has it twice, before its program has begun.
async fn started<C>(
    signals: &mut Signals,
    start: impl FnOnce() -> Result<C, Failed>,
    send: impl Fn(&C, Signal),
) -> Result<C, Failed> {
    let child = start()?;
    while let Some(signal) = arrived(signals).await {
        send(&child, signal);
    }
    Ok(child)
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

/// What becomes of a command to which a signal was sent.
fn outcome(is_allowed: bool, gets: &str) -> &str {
    if is_allowed { gets } else { UNREACHED }
}

/// The error and the exit status of a command that cannot be started.
pub(crate) fn cannot_run(program: &str, error: &io::Error) -> Failed {
    let status = match error.kind() {
        ErrorKind::NotFound => Status::NotFound,
        _ => Status::CannotRun,
    };
    Failed::new(status, format!("cannot run {program:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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
    async fn signal_during_the_start_is_sent_to_the_command() {
        let _alone = SIGNALS.lock().await;
        let mut signals = Signals::listen().unwrap();
        let mut others = Signals::listen().unwrap();
        kill_process(getpid(), Signal::USR1).unwrap();
        assert_eq!(others.next().await, Signal::USR1);
        let start = || Ok(RefCell::new(Vec::new()));
        let send = |sent: &RefCell<Vec<_>>, signal| sent.borrow_mut().push(signal);
        let sent = started(&mut signals, start, send).await.unwrap();
        assert_eq!(sent.into_inner(), [Signal::USR1]);
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

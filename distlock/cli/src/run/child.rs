//! The command: how it is started, signalled and ended.
//!
//! Without a terminal the command has a process group of its own, as under `timeout` or `consul-template`, and a signal
//! reaches all of the group: ending a shell alone would leave what the shell has started running, without the lock. A
//! program in another group than the terminal's may not read from it, so with a terminal the command stays in the group of
//! this process, as under `flock`. The group may have others then, such as the rest of a pipe, and no signal is sent to all of it: what
//! the command has started is found by its parents.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, wait};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

use super::group::{self, Earlier};
use crate::output::note;

/// What becomes of a command that the system does not let this process signal.
pub(crate) const UNREACHED: &str =
    "may not be signalled, because it has changed its user, and goes on";

/// How often what has been started is looked for when it is killed. What a process has started just before it was killed is not in the
/// list that names that process.
const KILLS: usize = 5;

/// A command that runs.
pub(crate) struct Child {
    pid: Pid,
    ended: Option<ExitStatus>,
    has_group: bool,
    /// Without a group, what it has not started.
    earlier: Earlier,
    /// A child of this process has ended.
    children: unix::Signal,
}

impl Child {
    /// Starts a command with these variables beside those of this process. With `json` it says in JSON why it cannot be run.
    ///
    /// # Errors
    /// There is no such command, or the system starts none.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, Option<String>)],
        json: bool,
    ) -> io::Result<Self> {
        let has_group = terminal().is_none();
        let (mut starting, ends_with_parent) = starting(command, json);
        if !ends_with_parent {
            note(format_args!(
                "distlock: WARN: without /proc the command does not get the signal of its parent's death: after a SIGKILL of \
                 distlock it goes on, and after the lease without the lock"
            ));
        }
        for (name, value) in variables {
            match value {
                Some(value) => starting.env(name, value),
                // Of another lock around this one.
                None => starting.env_remove(name),
            };
        }
        // Before the start, so that no end is missed.
        let children = unix::signal(SignalKind::child())?;
        let earlier = if has_group {
            starting.process_group(0);
            Earlier::default()
        } else {
            group::adopt_orphans();
            Earlier::now()
        };
        // Its own `wait` is not used: `reap` asks for all children.
        let process = starting.spawn()?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            pid: pid.ok_or_else(|| io::Error::other("it has no process id"))?,
            ended: None,
            has_group,
            earlier,
            children,
        })
    }

    /// How the command ended.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            self.reap()?;
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            self.children.recv().await;
        }
    }

    /// Asks how each child of this process has ended. If this is the first process of a container, those that the command has
    /// left behind are its children as well, and nobody else asks: they would stay in the table of processes.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    self.ended = Some(ExitStatus::from_raw(status.as_raw()));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(()),
                // All children were asked before.
                Err(Errno::CHILD) if self.ended.is_some() => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a signal to the command and to what it has started. Returns whether the system allows that for one of them: it does not for a
    /// command that has changed its user, as under `sudo`.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        if self.has_group {
            return is_allowed(kill_process_group(self.pid, signal));
        }
        let mut own = Some(self.pid).filter(|_| self.ended.is_none());
        let listed = || {
            let mut all = self.earlier.started_since();
            // Once it was reaped, its number may belong to another process. It may be one that the system does not tell of.
            all.extend(own.take().filter(|own| !all.contains(own)));
            all
        };
        // After another signal a process may start something before it ends, and that is not to be disturbed.
        let rounds = if signal == Signal::KILL { KILLS } else { 1 };
        each_once(rounds, listed, |one| is_allowed(kill_process(one, signal)))
    }

    /// Passes a signal on that this process has received, unless the terminal has sent it to the command as well. Returns whether it was
    /// passed on.
    pub(crate) fn pass_on(&self, signal: Signal) -> bool {
        // The terminal sends these to the whole group.
        let by_terminal = [Signal::INT, Signal::QUIT].contains(&signal);
        let is_passed_on = self.has_group || !by_terminal || !is_in_foreground();
        if is_passed_on {
            self.send(signal);
        }
        is_passed_on
    }

    /// Sends a signal to the command, and to what it has started if that has a group of its own, or is all that is left.
    pub(crate) fn send(&self, signal: Signal) {
        let is_allowed = if self.has_group || self.ended.is_some() {
            self.signal(signal)
        } else {
            is_allowed(kill_process(self.pid, signal))
        };
        if !is_allowed {
            let signal = signal.as_raw();
            note(format_args!(
                "distlock: signal {signal} for the command: it {UNREACHED}"
            ));
        }
    }

    /// Whether the rest of what the command has started runs, after the command has ended. `untold`: whether one runs of which the system
    /// does not tell that.
    pub(crate) fn rest_runs(&mut self, untold: bool) -> bool {
        // Those that cannot be asked count by what runs.
        let _asked = self.reap();
        if self.has_group {
            group::runs(self.pid, untold)
        } else {
            !self.earlier.started_since().is_empty()
        }
    }
}

/// Sends something to all that are listed, and then to those that have come meanwhile, so many times at most. Returns whether one was
/// reached, or there is none.
fn each_once(
    rounds: usize,
    mut listed: impl FnMut() -> Vec<Pid>,
    mut is_reached: impl FnMut(Pid) -> bool,
) -> bool {
    let (mut sent, mut reached) = (HashSet::new(), Vec::new());
    for _ in 0..rounds {
        let mut new = listed();
        new.retain(|one| sent.insert(*one));
        if new.is_empty() {
            break;
        }
        reached.extend(new.into_iter().map(&mut is_reached));
    }
    reached.is_empty() || reached.contains(&true)
}

/// Whether the system has allowed a signal. Other errors mean that there is nobody any more.
fn is_allowed(sent: rustix::io::Result<()>) -> bool {
    sent != Err(Errno::PERM)
}

/// The terminal that this process can read from and is interrupted by.
fn terminal() -> Option<File> {
    File::open("/dev/tty").ok()
}

fn is_in_foreground() -> bool {
    terminal().is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// The word by which this program is told to become a command.
#[cfg(target_os = "linux")]
const BECOME: &str = "__become";

/// How it says that it cannot.
#[cfg(target_os = "linux")]
const JSON: &str = "json";
#[cfg(target_os = "linux")]
const TEXT: &str = "text";

/// This program. Not by name: the file may have been replaced by a newer version.
#[cfg(target_os = "linux")]
const OWN: &str = "/proc/self/exe";

/// What becomes the command, and whether it ends with this process.
#[cfg(target_os = "linux")]
fn starting(command: &[OsString], json: bool) -> (Command, bool) {
    match through(OWN, command, json) {
        Some(starting) => (starting, true),
        None => (plain(command), false),
    }
}

/// A process that tells the kernel to send it SIGTERM when this process dies, and then becomes the command. Otherwise a
/// command would outlive a SIGKILL of this process, and after the lease go on without the lock.
#[cfg(target_os = "linux")]
fn through(own: &str, command: &[OsString], json: bool) -> Option<Command> {
    // Without /proc there is no such file.
    std::fs::metadata(own).ok()?;
    let mut starting = Command::new(own);
    // So that lists of processes name this program until it becomes the command.
    starting.arg0("distlock").arg(BECOME);
    starting.arg(if json { JSON } else { TEXT });
    starting.arg(std::process::id().to_string()).args(command);
    Some(starting)
}

/// Other systems have no such signal, and the README says so.
#[cfg(not(target_os = "linux"))]
fn starting(command: &[OsString], _json: bool) -> (Command, bool) {
    (plain(command), true)
}

fn plain(command: &[OsString]) -> Command {
    let mut words = command.iter().map(OsString::as_os_str);
    let mut starting = Command::new(words.next().unwrap_or_default());
    starting.args(words);
    starting
}

/// A command that this process was to become, and why it cannot.
pub(crate) struct NotBecome {
    pub(crate) program: OsString,
    pub(crate) error: io::Error,
    /// Whether it is to be said in JSON.
    pub(crate) json: bool,
}

/// Becomes a command, if this process was started for that. Otherwise it does nothing.
#[cfg(target_os = "linux")]
pub(crate) fn become_command(mut args: impl Iterator<Item = OsString>) -> Option<NotBecome> {
    args.next()?;
    if args.next()? != OsStr::new(BECOME) {
        return None;
    }
    let json = args.next()? == OsStr::new(JSON);
    let parent = args.next()?;
    let program = args.next()?;
    let error = if is_orphan(&parent) {
        io::Error::other("its parent has died")
    } else {
        Command::new(&program).args(args).exec()
    };
    Some(NotBecome {
        program,
        error,
        json,
    })
}

/// Asks for a signal when the parent dies. Returns whether it has died already, since then there is none.
#[cfg(target_os = "linux")]
fn is_orphan(parent: &OsStr) -> bool {
    // In this order: a parent that dies in between is found dead.
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let now = rustix::process::getppid().map(|pid| pid.to_string());
    asked.is_err() || parent.to_str() != now.as_deref()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn become_command(_args: impl Iterator<Item = OsString>) -> Option<NotBecome> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn command_starts_without_proc_and_through_this_program_with_it() {
        let command = ["sh", "-c", "exit 7"].map(OsString::from);
        assert!(through(OWN, &command, false).is_some());
        assert!(through("/no/proc/self/exe", &command, false).is_none());
        assert_eq!(plain(&command).status().unwrap().code(), Some(7));
    }

    #[test]
    fn what_comes_while_others_are_killed_is_killed_as_well_and_nobody_twice() {
        let ids =
            |all: &[i32]| -> Vec<_> { all.iter().copied().filter_map(Pid::from_raw).collect() };
        let killed = |rounds, lists: &[&[i32]]| {
            let mut lists = lists.iter().copied();
            let mut killed = Vec::new();
            let is_one = each_once(
                rounds,
                || ids(lists.next().unwrap()),
                |one| {
                    killed.push(one);
                    one.as_raw_nonzero().get() != 2
                },
            );
            (is_one, killed)
        };
        let lists: &[&[i32]] = &[&[2, 3], &[2, 3, 4], &[4], &[5]];
        assert_eq!(killed(5, lists), (true, ids(&[2, 3, 4])));
        assert_eq!(killed(1, lists), (true, ids(&[2, 3])));
        assert_eq!(killed(5, &[&[2], &[2]]), (false, ids(&[2])));
        assert_eq!(killed(5, &[&[]]), (true, Vec::new()));
        // Not without an end.
        assert_eq!(killed(2, &[&[6], &[7], &[8]]), (true, ids(&[6, 7])));
    }
}

//! The command: how it is started, signalled and ended.
//!
//! Without a terminal the command has a process group of its own, as under `timeout` or `consul-template`, and a signal
//! reaches all of the group: ending a shell alone would leave what the shell has started running, without the lock. A
//! program in another group than the terminal's may not read from it, so with a terminal the command stays in the group of
//! this process, as under `flock`, and signals reach the command alone.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getpgrp, kill_process, kill_process_group, test_kill_process_group,
};
use rustix::termios::tcgetpgrp;
use tokio::process::{self, Command};
use tokio::time::{Instant, sleep};

/// How often it is looked whether the rest of a group has ended. The kernel tells of the leader alone.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A command that runs.
pub(crate) struct Child {
    process: process::Child,
    pid: Pid,
    has_group: bool,
}

impl Child {
    /// Starts a command with these variables beside those of this process.
    ///
    /// # Errors
    /// There is no such command, or the system starts none.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, Option<String>)],
    ) -> io::Result<Self> {
        let has_group = terminal().is_none();
        let mut starting = starting(command);
        for (name, value) in variables {
            match value {
                Some(value) => starting.env(name, value),
                // Of another lock around this one.
                None => starting.env_remove(name),
            };
        }
        if has_group {
            starting.process_group(0);
        }
        let process = starting.spawn()?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self {
            process,
            pid,
            has_group,
        })
    }

    /// How the command ended.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Sends a signal to the command, and to what it has started if that is in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Errors mean that it has ended.
        let _ended = match self.has_group {
            true => kill_process_group(self.pid, signal),
            // After it was reaped the number may be another's.
            false if self.process.id().is_none() => Ok(()),
            false => kill_process(self.pid, signal),
        };
    }

    /// Passes a signal on that this process has received.
    pub(crate) fn pass_on(&self, signal: Signal) {
        // The terminal sends these to the whole group, so the command has it already.
        let by_terminal = [Signal::INT, Signal::QUIT].contains(&signal);
        if !self.has_group && by_terminal && is_in_foreground() {
            return;
        }
        self.signal(signal);
    }

    /// Waits for the rest of the group, after the command has ended, and kills it at this time.
    pub(crate) async fn end_group(&self, kill_at: Instant) {
        while self.has_group && test_kill_process_group(self.pid).is_ok() {
            if Instant::now() >= kill_at {
                self.signal(Signal::KILL);
                return;
            }
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }
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

/// A process that tells the kernel to send it SIGTERM when this process dies, and then becomes the command. Otherwise a
/// command would outlive a SIGKILL of this process, and after the lease go on without the lock.
#[cfg(target_os = "linux")]
fn starting(command: &[OsString]) -> Command {
    // Not by name: the file may have been replaced by a newer version.
    let mut starting = Command::new("/proc/self/exe");
    starting.arg0("distlock").arg(BECOME);
    starting.arg(std::process::id().to_string()).args(command);
    starting
}

#[cfg(not(target_os = "linux"))]
fn starting(command: &[OsString]) -> Command {
    let (program, args) = command.split_first().unwrap_or((&EMPTY, &[]));
    let mut starting = Command::new(program);
    starting.args(args);
    starting
}

#[cfg(not(target_os = "linux"))]
static EMPTY: OsString = OsString::new();

/// Becomes a command, if this process was started for that. Otherwise it does nothing. If it returns an error, there is no
/// such command, or it cannot be run.
#[cfg(target_os = "linux")]
pub(crate) fn become_command(
    mut args: impl Iterator<Item = OsString>,
) -> Option<(OsString, io::Error)> {
    use std::os::unix::process::CommandExt;

    args.next()?;
    if args.next()? != OsStr::new(BECOME) {
        return None;
    }
    let parent = args.next()?;
    let program = args.next()?;
    let orphaned = || Some((program.clone(), io::Error::other("its parent has died")));
    if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err() {
        return orphaned();
    }
    // If the parent has died before this, there is no signal.
    let now = rustix::process::getppid().map(|pid| pid.to_string());
    if parent.to_str() != now.as_deref() {
        return orphaned();
    }
    let error = std::process::Command::new(&program).args(args).exec();
    Some((program, error))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn become_command(
    _args: impl Iterator<Item = OsString>,
) -> Option<(OsString, io::Error)> {
    None
}

//! Child processes that cannot outlive this one.
//!
//! A test process ends by returning, by a panic, by `exit` or by a SIGKILL from outside, and `Drop`
//! sees only some of these. So there is a guardian: one `sh` per test process that blocks on a pipe.
//! Children enter their pid into that pipe; when it ends because its only writer is gone, the
//! guardian kills all that are still listed, and removes their directories.
//!
//! # Invariants
//! 1. A child is listed before its program starts: one process writes its pid, then calls `exec`.
//! 2. A pid is struck off after its process has ended and before it is reaped. Until then nobody
//!    else can get that pid, so neither we nor the guardian ever signal a stranger.
//! 3. Only this process keeps the pipe open: a child holds it as its stderr up to the `exec`.
//! 4. The guardian and the children have process groups of their own, so that what ends the tests
//!    as a group (Ctrl-C, a runner's timeout) does not end the guardian before its work.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::environment;

/// What the guardian runs: a list of pids, kept up to date until the pipe ends, and the directories
/// that have to go as well. Most of these are gone by then.
const WATCH: &str = r#"
trap '' INT TERM HUP
listed=' '
while read -r sign what; do
  case "$sign$listed" in
    +*) listed="$listed$what " ;;
    -*" $what "*) listed="${listed%% $what *} ${listed#* $what }" ;;
    directory*) set -- "$@" "$what" ;;
  esac
done
kill -9 $listed
rm -rf -- "$@"
"#;

/// What a child runs first: it enters its pid, then becomes its program.
const ENTER: &str = r#"echo "+ $$" >&2 && log=$1 && shift && exec "$@" 2>>"$log""#;

/// A child process that ends with this value, and with this process however that ends.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    pid: Pid,
    stopped: bool,
    ended: Option<ExitStatus>,
}

impl Guarded {
    /// Starts `program` with `args`; its stderr is appended to the file `log`.
    ///
    /// A program that does not exist shows as exit status 127, not as an error here.
    ///
    /// # Errors
    /// If no process can be started at all.
    pub fn spawn<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
        log: &Path,
        stdin: Stdio,
        stdout: Stdio,
    ) -> io::Result<Self> {
        let child = environment::clean(&mut Command::new("sh"))
            .args(["-c", ENTER, "sh"])
            .args([log.as_os_str(), program.as_ref()])
            .args(args)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::from(guardian_pipe()?))
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self {
            child,
            pid,
            stopped: false,
            ended: None,
        })
    }

    /// Process id. The same before and after the program has started.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's stdin, if it was started with a pipe and this was not asked before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The child's stdout, if it was started with a pipe and this was not asked before.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Whether it was neither stopped nor seen to have ended.
    #[must_use]
    pub fn runs(&self) -> bool {
        !self.stopped && self.ended.is_none()
    }

    /// SIGSTOP. On return the process stands still (or has ended).
    pub fn stop(&mut self) {
        if self.signal(Signal::STOP) {
            self.stopped = true;
            // The signal is only on its way when `kill` returns: wait until it has arrived.
            self.await_state(WaitIdOptions::STOPPED);
        }
    }

    /// SIGCONT. Does nothing to a process that runs or has ended.
    pub fn cont(&mut self) {
        self.signal(Signal::CONT);
        self.stopped = false;
    }

    /// SIGKILL, and waits until the process has ended. A stopped process dies of it as well.
    pub fn kill(&mut self) {
        if self.signal(Signal::KILL) {
            self.reap();
        }
    }

    /// SIGTERM. Does nothing to a process that has ended.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGINT. Does nothing to a process that has ended.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// How the process ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() && self.await_state(WaitIdOptions::NOHANG) {
            self.reap();
        }
        self.ended
    }

    /// Whether the signal went to a process that was not reaped yet.
    fn signal(&self, signal: Signal) -> bool {
        self.ended.is_none() && kill_process(self.pid, signal).is_ok()
    }

    /// Waits for the end of the process, or what `also` names. Reaps nothing.
    fn await_state(&self, also: WaitIdOptions) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | also;
        matches!(
            retry_on_intr(|| waitid(WaitId::Pid(self.pid), options)),
            Ok(Some(_))
        )
    }

    fn reap(&mut self) {
        self.await_state(WaitIdOptions::empty());
        strike_off(self.pid());
        self.ended = self.child.wait().ok();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The write end of the guardian's pipe. The guardian starts with the first child.
fn guardian() -> io::Result<&'static ChildStdin> {
    static GUARDIAN: OnceLock<ChildStdin> = OnceLock::new();
    if let Some(pipe) = GUARDIAN.get() {
        return Ok(pipe);
    }
    let mut guardian = Command::new("sh")
        .args(["-c", WATCH])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = guardian.stdin.take().expect("stdin is piped");
    // Of two that started at once the second loses its pipe here, and so ends.
    Ok(GUARDIAN.get_or_init(|| pipe))
}

fn guardian_pipe() -> io::Result<OwnedFd> {
    guardian()?.as_fd().try_clone_to_owned()
}

/// A directory that goes with its value, and with this process however that ends.
///
/// # Panics
/// If the system gives none.
pub(crate) fn scratch() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    tell(&format!("directory {}\n", dir.path().display()));
    dir
}

fn strike_off(pid: u32) {
    tell(&format!("- {pid}\n"));
}

/// Not an error: without a guardian there is no list to keep.
fn tell(line: &str) {
    if let Ok(mut pipe) = guardian() {
        // One write below PIPE_BUF: lines of several threads do not mix.
        let _ = pipe.write_all(line.as_bytes());
    }
}

//! A child program that a test talks to by lines, stops, and kills.
//!
//! # Invariants
//! 1. The program ends with the value and with this test process (see [`guardian`]).
//! 2. Nothing here waits without a deadline; what fails shows the program's stderr.

pub mod environment;
pub mod guardian;

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use self::guardian::{Guarded, scratch};
use crate::eventually::Patience;

/// File name of what the program writes to stderr.
const STDERR: &str = "stderr";

/// A running child program with a line in and a line out, ended by `Drop`.
#[derive(Debug)]
pub struct Process {
    process: Guarded,
    input: Option<ChildStdin>,
    output: Option<Lines<BufReader<ChildStdout>>>,
    // With the file that stderr goes to.
    dir: TempDir,
}

impl Process {
    /// Starts a program. For a binary of this package the path is `env!("CARGO_BIN_EXE_holder")`.
    ///
    /// # Panics
    /// If no process can be started, or outside of a tokio runtime.
    pub fn start<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let dir = scratch();
        let stderr = dir.path().join(STDERR);
        let mut process = Guarded::spawn(program, args, &stderr, Stdio::piped(), Stdio::piped())
            .expect("a process for the program");
        let input = process.take_stdin();
        let output = process.take_stdout().expect("stdout is piped");
        let output = ChildStdout::from_std(output).expect("a pipe that the runtime can read");
        Self {
            process,
            input,
            output: Some(BufReader::new(output).lines()),
            dir,
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The next line of the program's stdout.
    ///
    /// # Panics
    /// If none comes `within` the time, or the output has ended.
    ///
    /// # Cancel safety
    /// Nothing is lost: a line that has come in part is there for the next call.
    pub async fn line(&mut self, within: Duration) -> String {
        let output = self.output.as_mut().expect("the output was not taken");
        match timeout(within, output.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => self.fail("its output has ended"),
            Ok(Err(error)) => self.fail(format!("cannot read its output: {error}")),
            Err(_) => self.fail(format!("no line within {within:?}")),
        }
    }

    /// The next line, which must begin with these words.
    ///
    /// # Panics
    /// As [`Process::line`], or if the line begins with others.
    pub async fn expect(&mut self, begins: &str, within: Duration) -> String {
        let line = self.line(within).await;
        if !line.starts_with(begins) {
            self.fail(format!("expected {begins:?}, got {line:?}"))
        }
        line
    }

    /// Sends a line, and expects an answer that begins with these words.
    ///
    /// # Panics
    /// As [`Process::send`] and [`Process::expect`].
    pub async fn ask(&mut self, line: impl Display, begins: &str, within: Duration) -> String {
        self.send(line);
        self.expect(begins, within).await
    }

    /// The next line, which must be JSON.
    ///
    /// # Panics
    /// As [`Process::line`], or if the line is not JSON.
    pub async fn json(&mut self, within: Duration) -> Value {
        let line = self.line(within).await;
        match serde_json::from_str(&line) {
            Ok(value) => value,
            Err(error) => self.fail(format!("{error} in the line {line:?}")),
        }
    }

    /// The program's stdout from here on, for a reader beside this one: no line comes here any more.
    ///
    /// # Panics
    /// If it was taken before.
    pub fn take_output(&mut self) -> Lines<BufReader<ChildStdout>> {
        self.output.take().expect("the output was not taken")
    }

    /// Writes a line to the program's stdin.
    ///
    /// # Panics
    /// If the program no longer reads, or after [`Process::close_input`].
    pub fn send(&mut self, line: impl Display) {
        let input = self.input.as_mut().expect("the input is open");
        if let Err(error) = input.write_all(format!("{line}\n").as_bytes()) {
            self.fail(format!("cannot write to it: {error}"))
        }
    }

    /// Ends the program's stdin.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// SIGKILL. On return the process has ended; lines it wrote before can still be read.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP. On return the process stands still.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// SIGCONT.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// SIGTERM, by which service managers and containers end a program.
    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// SIGINT, which is Ctrl-C in a terminal.
    pub fn interrupt(&self) {
        self.process.interrupt();
    }

    /// How the program ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Waits until the program ends.
    ///
    /// # Panics
    /// If it has not ended `within` the time.
    pub async fn wait(&mut self, within: Duration) -> ExitStatus {
        let mut patience = Patience::new(within);
        loop {
            if let Some(status) = self.process.exited() {
                return status;
            }
            if !patience.pause().await {
                self.fail(format!("still running after {within:?}"))
            }
        }
    }

    /// What the program has written to stderr.
    #[must_use]
    pub fn stderr(&self) -> String {
        let bytes = fs::read(self.dir.path().join(STDERR)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn fail(&self, why: impl Display) -> ! {
        panic!(
            "process {}: {why}; its stderr:\n{}",
            self.pid(),
            self.stderr()
        )
    }
}

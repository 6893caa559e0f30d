//! A copy of the test's process, and lines to and from it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// How long a line of the copy may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which of the two processes this is after the fork.
pub(crate) enum Side {
    /// The copy.
    Copy(Original),
    /// The original.
    Original(NewCopy),
}

/// Copies this process, which must have no other thread.
///
/// # Panics
/// If it has one, or if there is no copy.
pub(crate) fn fork() -> Side {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    assert!(threads.is_err() || threads.is_ok_and(|number| number == 1));
    let (here, there) = UnixStream::pair().unwrap();
    // SAFETY: this is the only thread of the process, so the copy lacks none that may have locked something.
    match unsafe { libc::fork() } {
        -1 => panic!("no copy: {}", std::io::Error::last_os_error()),
        0 => Side::Copy(Original(BufReader::new(there))),
        pid => Side::Original(NewCopy { pid, stream: here }),
    }
}

/// What the copy has of the original.
pub(crate) struct Original(BufReader<UnixStream>);

impl Original {
    /// Carries out the part of the copy, and ends the process.
    pub(crate) fn play(mut self, part: impl FnOnce(&mut Self)) -> ! {
        let played = catch_unwind(AssertUnwindSafe(|| part(&mut self)));
        // SAFETY: it only ends the process. Nothing of the original is dropped here, and nothing is written twice.
        unsafe { libc::_exit(i32::from(played.is_err())) }
    }

    /// Tells the original something.
    pub(crate) fn tell(&mut self, value: &Value) {
        writeln!(self.0.get_mut(), "{value}").unwrap();
    }

    /// Waits until the original says to go on.
    pub(crate) fn wait(&mut self) {
        let read = self.0.read_line(&mut String::new()).unwrap();
        assert!(read > 0, "the original has ended");
    }
}

/// A copy that nobody listens to yet.
pub(crate) struct NewCopy {
    pid: libc::pid_t,
    stream: UnixStream,
}

impl NewCopy {
    /// Listens to the copy, in the caller's runtime.
    pub(crate) fn listen(self) -> Copy {
        self.stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::UnixStream::from_std(self.stream).unwrap();
        Copy {
            pid: self.pid,
            stream: tokio::io::BufReader::new(stream),
        }
    }
}

/// A copy of this process.
pub(crate) struct Copy {
    pid: libc::pid_t,
    stream: tokio::io::BufReader<tokio::net::UnixStream>,
}

impl Copy {
    /// What the copy tells next.
    pub(crate) async fn told(&mut self) -> Value {
        let line = self.line().await;
        assert!(!line.is_empty(), "the copy has ended; see its panic");
        serde_json::from_str(&line).unwrap()
    }

    /// Lets the copy go on.
    pub(crate) async fn go_on(&mut self) {
        self.stream.write_all(b"go on\n").await.unwrap();
    }

    /// Waits for the end of the copy, which must not have panicked.
    pub(crate) async fn ended(mut self) {
        assert_eq!(self.line().await, "");
        let mut status = 0;
        // SAFETY: `status` lives as long as the call. The copy closed its end, so the call returns soon.
        let ended = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!((ended, status), (self.pid, 0), "the copy has panicked");
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.stream.read_line(&mut line)).await;
        let _bytes = read.expect("the copy is alive, and silent").unwrap();
        line
    }
}

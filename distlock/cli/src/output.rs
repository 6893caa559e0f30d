//! What is written to stdout and stderr.

use std::io::{self, ErrorKind, Write};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use std::{fmt, thread};

use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::exit::{Failed, Status};
use crate::signals::Signals;

/// How long a signal does not end the wait for the last lines. One that has just ended a command would.
const DEAF: Duration = Duration::from_secs(1);

/// The thread that writes to stderr, if there is one.
static WRITER: OnceLock<mpsc::Sender<Note>> = OnceLock::new();

/// What that thread gets.
enum Note {
    Line(String),
    /// All lines before it are written when this is dropped.
    Written(oneshot::Sender<()>),
}

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failed> {
    let line =
        serde_json::to_string(value).map_err(|error| Failed::new(Status::Software, error))?;
    text(&(line + "\n"))
}

/// Writes a text.
pub(crate) fn text(text: &str) -> Result<(), Failed> {
    part(text).map(drop)
}

/// Writes a part of a text. Returns whether somebody still reads.
pub(crate) fn part(text: &str) -> Result<bool, Failed> {
    let mut stdout = io::stdout().lock();
    // A last line without an end would stay behind.
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(true),
        // As of `distlock ls | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failed::new(
            Status::Software,
            format!("stdout cannot be written: {error}"),
        )),
    }
}

/// Writes a line to stderr, if that is possible. A failure is ignored: `eprintln!` would panic if the disk of a log is full or its
/// reader has ended, and `run` would leave its command behind.
pub(crate) fn note(line: fmt::Arguments<'_>) {
    let line = format!("{line}\n");
    match WRITER.get() {
        // The thread ends with the process.
        Some(writer) => drop(writer.send(Note::Line(line))),
        None => write(&line),
    }
}

/// From here on [`note`] returns at once, and a thread writes the lines. A pipe that nobody reads blocks its writer when it is
/// full, and `run` has to renew its lock and to end its command meanwhile.
pub(crate) fn note_in_background() {
    let (writer, notes) = mpsc::channel();
    let started = thread::Builder::new().spawn(move || {
        for note in notes {
            match note {
                Note::Line(line) => write(&line),
                Note::Written(all) => drop(all),
            }
        }
    });
    // Without a thread, lines are written as before.
    if started.is_ok() {
        let _first = WRITER.set(writer);
    }
}

/// Completes when all lines are written, or when a signal says that nobody will read them.
pub(crate) async fn noted() {
    let Some(writer) = WRITER.get() else {
        return;
    };
    let (all, written) = oneshot::channel();
    drop(writer.send(Note::Written(all)));
    tokio::select! {
        _ = written => {}
        () = later_signal() => {}
    }
}

/// The next signal after a moment.
async fn later_signal() {
    sleep(DEAF).await;
    if let Ok(mut signals) = Signals::listen() {
        signals.next().await;
    }
}

fn write(line: &str) {
    // In one piece, because a command may write to the same file.
    let _written = io::stderr().write_all(line.as_bytes());
}

/// A name that comes from a server, without what a terminal would obey or a person would not see.
pub(crate) fn plain(text: &str) -> String {
    distlock::visible(text).into_owned()
}

/// Keys as text.
pub(crate) fn names(keys: &[String]) -> String {
    let quoted = keys.iter().map(|key| format!("{key:?}"));
    quoted.collect::<Vec<_>>().join(", ")
}

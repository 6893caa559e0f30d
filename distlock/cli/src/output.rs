//! What is written to stdout and stderr.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::exit::{Failed, Status};

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failed> {
    let line =
        serde_json::to_string(value).map_err(|error| Failed::new(Status::Software, error))?;
    text(&(line + "\n"))
}

/// Writes a text.
pub(crate) fn text(text: &str) -> Result<(), Failed> {
    let mut stdout = io::stdout().lock();
    // A last line without an end would stay behind.
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(()),
        // As of `distlock ls | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failed::new(Status::Software, error)),
    }
}

/// Writes a line to stderr, if that is possible. A failure is ignored: `eprintln!` would panic if the disk of a log is full or its
/// reader has ended, and `run` would leave its command behind.
pub(crate) fn note(line: fmt::Arguments<'_>) {
    // In one piece, because a command may write to the same file.
    let _written = io::stderr().write_all(format!("{line}\n").as_bytes());
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

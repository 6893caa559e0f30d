//! What is written to stdout.

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

/// A text that comes from a server, without what a terminal would obey. Anybody who may lock can choose a key.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_in_keys_do_nothing() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(plain("order:é"), "order:é");
    }
}

//! What is known of the terminal that a person looks at: how wide it is, and whether it shows colours.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// The width of stdout, if it is a terminal that tells.
pub(crate) fn columns() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok());
    let columns = size.flatten()?.ws_col;
    // A terminal that does not know its width says 0.
    (columns > 0).then_some(columns.into())
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

/// Colours for what is written to stdout.
pub(crate) fn stdout() -> Paint {
    Paint::of(&io::stdout())
}

/// Colours for what is written to stderr.
pub(crate) fn stderr() -> Paint {
    Paint::of(&io::stderr())
}

impl Paint {
    fn of(stream: &impl IsTerminal) -> Self {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|set| set != OsStr::new(""));
        Self(stream.is_terminal() && !is_dumb && !is_unwanted)
    }

    fn with(self, code: u8, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with(1, text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with(2, text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with(31, text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with(32, text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with(33, text)
    }
}

//! The stored ratios: a text file with a line for each case, of its name, its ratio, the date and the reason.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// The reason of a line that was written by this program, until a person has written one.
const NO_REASON: &str = "(write the reason here)";

/// What the file begins with.
const HEADER: &str = "# Instructions of the library for each instruction of the bare commands. `tests/README.md` explains them.
# case ratio date reason
";

/// The file. Its lines stay in the order of the cases.
pub(crate) struct Stored {
    lines: Vec<Line>,
}

struct Line {
    case: String,
    ratio: f64,
    date: String,
    reason: String,
}

impl Stored {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &str| {
            let mut words = line.splitn(4, ' ');
            Some(Line {
                case: words.next()?.to_owned(),
                ratio: words.next()?.parse().ok()?,
                date: words.next()?.to_owned(),
                reason: words.next()?.trim().to_owned(),
            })
        };
        let lines = lines.map(|line| parse(line).unwrap_or_else(|| panic!("cannot read {line:?}")));
        Self {
            lines: lines.collect(),
        }
    }

    pub(crate) fn ratio(&self, case: &str) -> Option<f64> {
        let line = self.lines.iter().find(|line| line.case == case)?;
        Some(line.ratio)
    }

    /// By which part of the stored ratio another one differs from it.
    pub(crate) fn difference(&self, case: &str, ratio: f64) -> Option<f64> {
        Some(ratio / self.ratio(case)? - 1.0)
    }

    /// Whether somebody has written why the ratio of a case is what it is.
    pub(crate) fn has_reason(&self, case: &str) -> bool {
        let line = self.lines.iter().find(|line| line.case == case);
        line.is_some_and(|line| !line.reason.is_empty() && line.reason != NO_REASON)
    }

    /// Stores a ratio, as of today and without a reason.
    pub(crate) fn set(&mut self, case: &str, ratio: f64) {
        let line = Line {
            case: case.to_owned(),
            ratio,
            date: today(),
            reason: NO_REASON.to_owned(),
        };
        match self.lines.iter_mut().find(|line| line.case == case) {
            Some(former) => *former = line,
            None => self.lines.push(line),
        }
    }

    pub(crate) fn write(&self) {
        let mut text = HEADER.to_owned();
        for line in &self.lines {
            let Line {
                case,
                ratio,
                date,
                reason,
            } = line;
            writeln!(text, "{case} {ratio:.3} {date} {reason}").unwrap();
        }
        std::fs::write(path(), text).unwrap();
    }
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "instructions.txt"]
        .iter()
        .collect()
}

fn today() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output().unwrap();
    String::from_utf8(date.stdout).unwrap().trim().to_owned()
}

//! The table of primitives, versions and directions.

use std::collections::BTreeMap;
use std::fmt;

use distlock_interop::Side;
use parking_lot::Mutex;

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Reentrant,
    Fair,
    ReadWrite,
    Spin,
    Fenced,
    NonReentrant,
    Multi,
    Red,
    Semaphore,
    Permit,
    Latch,
    Leader,
    Detached,
    Names,
    Share,
    Cluster,
    Sentinel,
    Mixed,
}

const ROWS: [(Row, &str); 18] = [
    (Row::Reentrant, "reentrant lock"),
    (Row::Fair, "fair lock"),
    (Row::ReadWrite, "read/write lock"),
    (Row::Spin, "spin lock"),
    (Row::Fenced, "fenced lock"),
    (Row::NonReentrant, "non-reentrant locks"),
    (Row::Multi, "multi-lock"),
    (Row::Red, "Redlock"),
    (Row::Semaphore, "semaphore"),
    (Row::Permit, "expirable semaphore"),
    (Row::Latch, "count-down latch"),
    (Row::Leader, "leader and fenced lock"),
    (Row::Detached, "detached holds"),
    (Row::Names, "odd names"),
    (Row::Share, "share of a busy lock"),
    (Row::Cluster, "on a cluster"),
    (Row::Sentinel, "on a set with Sentinels"),
    (Row::Mixed, "mixed histories with kills"),
];

/// Which side holds, and which one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// The holder is Rust.
    RustToJava,
    /// The holder is Java.
    JavaToRust,
    /// Both sides do the same.
    Both,
}

impl Direction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RustToJava => "rust_to_java",
            Self::JavaToRust => "java_to_rust",
            Self::Both => "both",
        }
    }

    fn columns(self) -> &'static [Self] {
        match self {
            Self::RustToJava => &[Self::RustToJava],
            Self::JavaToRust => &[Self::JavaToRust],
            Self::Both => &COLUMNS,
        }
    }
}

const COLUMNS: [Direction; 2] = [Direction::RustToJava, Direction::JavaToRust];

/// The outcome of the trials of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: usize,
    passed: usize,
    missing: usize,
}

/// The results of all trials.
#[derive(Debug, Default)]
pub(crate) struct Table(Mutex<BTreeMap<(Row, &'static str, Direction), Count>>);

/// The cell of a trial, or both cells of one that is for both directions.
pub(crate) struct Cell<'a> {
    table: &'a Table,
    row: Row,
    version: &'static str,
    direction: Direction,
}

impl Table {
    /// A trial begins. One that fails is never counted as passed.
    pub(crate) fn begin(&self, row: Row, version: &'static str, direction: Direction) -> Cell<'_> {
        let cell = Cell {
            table: self,
            row,
            version,
            direction,
        };
        cell.count(|count| count.begun += 1);
        cell
    }

    /// Whether each cell was filled by a trial. Mixed histories are played with the newest version alone, unless all are
    /// asked for.
    pub(crate) fn is_full(&self) -> bool {
        let cells = self.0.lock();
        ROWS.iter().all(|(row, _)| {
            let mut versions = Side::versions().into_iter();
            let is_filled = |version| {
                let mut columns = COLUMNS.into_iter();
                columns.all(|column| cells.contains_key(&(*row, version, column)))
            };
            match row {
                Row::Mixed => versions.any(is_filled),
                _ => versions.all(is_filled),
            }
        })
    }

    /// Whether a page shows this table. It shows the mixed histories of all versions, which not every run plays.
    pub(crate) fn is_in(&self, page: &str) -> bool {
        let text = self.to_string();
        let mut lines = text
            .lines()
            .filter(|line| !line.contains("mixed histories"));
        lines.all(|line| page.lines().any(|shown| shown == line))
    }
}

impl Cell<'_> {
    fn count(&self, change: impl Fn(&mut Count)) {
        let mut cells = self.table.0.lock();
        for column in self.direction.columns() {
            change(cells.entry((self.row, self.version, *column)).or_default());
        }
    }

    pub(crate) fn passed(self) {
        self.count(|count| count.passed += 1);
    }

    /// This version of Redisson does not have the object.
    pub(crate) fn missing(self) {
        self.count(|count| count.missing += 1);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.0.lock();
        write!(f, "| primitive |")?;
        for version in Side::versions() {
            write!(
                f,
                " Rust holds, Java {version} waits | Java {version} holds, Rust waits |"
            )?;
        }
        writeln!(f, "\n| --- | --- | --- | --- | --- |")?;
        for (row, name) in ROWS {
            write!(f, "| {name} |")?;
            for version in Side::versions() {
                for column in COLUMNS {
                    match cells.get(&(row, version, column)) {
                        None => write!(f, " not played |")?,
                        Some(count) if count.missing == count.begun => {
                            write!(f, " not in {version} |")?
                        }
                        Some(count) if count.passed + count.missing == count.begun => {
                            write!(f, " {} passed |", count.passed)?;
                        }
                        Some(count) => {
                            let failed = count.begun - count.passed - count.missing;
                            write!(f, " {} passed, {failed} FAILED |", count.passed)?;
                        }
                    }
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

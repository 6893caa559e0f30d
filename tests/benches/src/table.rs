//! The table that a run ends with: one line for each row, with the median and the middle half of its rounds.

use std::array;
use std::fmt::{self, Display, Formatter};
use std::time::Instant;

use crate::quartiles;

/// One comparison: the figures of each side, round by round.
#[derive(Clone, Debug, Default)]
pub struct Row {
    what: String,
    unit: &'static str,
    reference: &'static str,
    ours: Vec<f64>,
    theirs: Vec<f64>,
    peers: [Vec<f64>; 2],
}

impl Row {
    /// A row without figures. `reference` names what the library is compared with.
    pub fn new(what: impl Into<String>, unit: &'static str, reference: &'static str) -> Self {
        let what = what.into();
        Self {
            what,
            unit,
            reference,
            ..Self::default()
        }
    }

    /// Adds the figures of the library.
    pub fn ours(mut self, rounds: Vec<f64>) -> Self {
        self.ours = rounds;
        self
    }

    /// Adds the figures of what the library is compared with, in the same rounds.
    pub fn theirs(mut self, rounds: Vec<f64>) -> Self {
        self.theirs = rounds;
        self
    }

    /// Adds the figures of `rslock`.
    pub fn rslock(mut self, rounds: Vec<f64>) -> Self {
        self.peers[0] = rounds;
        self
    }

    /// Adds the figures of `redis-lock`.
    pub fn redis_lock(mut self, rounds: Vec<f64>) -> Self {
        self.peers[1] = rounds;
        self
    }

    /// The ratio of each round. The rounds of both sides alternate, so noise that lasts affects both of a pair.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.theirs);
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }
}

impl Row {
    fn cells(&self) -> [String; COLUMNS.len()] {
        let [rslock, redis_lock] = &self.peers;
        let reference = match self.reference {
            "" => "-",
            reference => reference,
        };
        [
            self.what.clone(),
            self.unit.to_owned(),
            cell(&self.ours),
            reference.to_owned(),
            cell(&self.theirs),
            cell(&self.ratios()),
            cell(rslock),
            cell(redis_lock),
        ]
    }
}

const COLUMNS: [&str; 8] = [
    "row",
    "unit",
    "distlock",
    "compared with",
    "its figure",
    "distlock / it",
    "rslock",
    "redis-lock",
];

/// All rows of a run, in the order in which they were measured.
#[derive(Debug)]
pub struct Table {
    start: Instant,
    rows: Vec<Row>,
}

impl Table {
    /// An empty table. The progress that it prints counts from now.
    #[allow(clippy::new_without_default, reason = "it starts a clock")]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, and prints it as progress.
    pub fn push(&mut self, row: Row) {
        let (ours, ratio) = (cell(&row.ours), cell(&row.ratios()));
        let elapsed = self.start.elapsed().as_secs();
        let compared = if row.theirs.is_empty() {
            String::new()
        } else {
            format!(", {ratio} times {}", row.reference)
        };
        println!(
            "[{elapsed:>3} s] {}: {ours} {}{compared}",
            row.what, row.unit
        );
        self.rows.push(row);
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lines = vec![COLUMNS.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let longest = |column: usize| lines.iter().map(|line| line[column].len()).max();
        let widths: [usize; COLUMNS.len()] = array::from_fn(|column| longest(column).unwrap_or(0));
        lines.insert(1, widths.map(|width| "-".repeat(width)));
        for line in lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
        }
        Ok(())
    }
}

/// The median, with the middle half of the rounds behind it.
fn cell(rounds: &[f64]) -> String {
    if rounds.is_empty() {
        return "-".to_owned();
    }
    let [low, median, high] = quartiles(rounds.to_vec()).map(short);
    match rounds.len() {
        1 => median,
        _ => format!("{median} ({low} to {high})"),
    }
}

/// Three digits, which is more than the noise leaves.
pub fn short(figure: f64) -> String {
    let decimals = match figure.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    format!("{figure:.decimals$}")
}

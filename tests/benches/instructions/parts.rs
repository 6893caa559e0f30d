//! The parts into which callgrind divides a run: it writes down its count each time [`part_ends`] is called.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The functions before whose calls callgrind writes a part.
pub(crate) const BOUNDARY: &str = "*parts::part_ends*";

/// The side that did the operations of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Library,
    Bare,
}

/// The operations of a part, if it counts.
pub(crate) type Label = Option<(Side, usize)>;

/// One label for each part of this run.
#[derive(Default)]
pub(crate) struct Parts {
    labels: Vec<Label>,
}

impl Parts {
    /// Counts what a future does, as a part for itself.
    pub(crate) async fn count(&mut self, side: Side, operations: usize, work: impl Future) {
        self.end();
        work.await;
        self.end();
        self.counts(side, operations);
    }

    /// Ends a part, which does not count unless [`Parts::counts`] says so.
    pub(crate) fn end(&mut self) {
        part_ends();
        self.labels.push(None);
    }

    /// The part that has ended last counts.
    pub(crate) fn counts(&mut self, side: Side, operations: usize) {
        if let Some(last) = self.labels.last_mut() {
            *last = Some((side, operations));
        }
    }
}

/// One line for each part, which [`label`] reads.
impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in &self.labels {
            match label {
                Some((Side::Library, operations)) => writeln!(f, "library {operations}")?,
                Some((Side::Bare, operations)) => writeln!(f, "bare {operations}")?,
                None => writeln!(f, "-")?,
            }
        }
        Ok(())
    }
}

pub(crate) fn label(line: &str) -> Label {
    let (side, operations) = line.split_once(' ')?;
    let side = match side {
        "library" => Side::Library,
        _ => Side::Bare,
    };
    Some((side, operations.parse().ok()?))
}

/// It changes something, so that no compiler leaves it out or merges it with another function.
#[inline(never)]
fn part_ends() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    ENDED.fetch_add(1, Ordering::Relaxed);
}

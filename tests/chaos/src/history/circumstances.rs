//! What a failure prints of the history: the machine on which it failed may be gone with the file.

use std::fmt::Write as _;

use super::{Operation, Operations, Timestamp, Violation};

/// The faults of this time before a violation are told.
const BEFORE: Timestamp = 15_000_000_000;

/// And those of this time after it.
const AFTER: Timestamp = 2_000_000_000;

/// The operations that a violation names, and the faults and stalls around it.
#[must_use]
pub fn circumstances(violation: &Violation, operations: &Operations) -> String {
    let (from, to) = (
        violation.at.saturating_sub(BEFORE),
        violation.at.saturating_add(AFTER),
    );
    let mut text = String::new();
    let names = |op: &&Operation| {
        let mut words = violation
            .what
            .split(|c: char| !(c.is_ascii_digit() || c == '.'));
        words.any(|word| word == op.id.to_string())
    };
    for op in operations.all.iter().filter(names) {
        let _ = writeln!(text, "{op:?}");
    }
    for fault in &operations.faults {
        if fault.to >= from && fault.from <= to {
            let _ = writeln!(text, "{fault:?}");
        }
    }
    for stall in operations.stalls.all().between(from, to) {
        let _ = writeln!(text, "{stall:?}");
    }
    text
}

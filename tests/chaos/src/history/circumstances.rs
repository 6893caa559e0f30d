//! What a failure prints of the history: the machine on which it failed may be gone with the file.

use std::fmt::Write as _;

use super::{Operation, Operations, Timestamp, Violation};

/// The faults of this time before a violation are told.
const BEFORE: Timestamp = 15_000_000_000;

/// And those of this time after it.
const AFTER: Timestamp = 2_000_000_000;

/// The faults and stalls around a violation, and the operations that it names.
#[must_use]
pub fn circumstances(violation: &Violation, operations: &Operations) -> String {
    let (from, to) = (
        violation.at.saturating_sub(BEFORE),
        violation.at.saturating_add(AFTER),
    );
    let mut text = String::new();
    for fault in &operations.faults {
        if fault.to >= from && fault.from <= to {
            let _ = writeln!(text, "{fault:?}");
        }
    }
    let stalls = operations.stalls.all().between(from, to);
    let lengths: Vec<Timestamp> = stalls.map(|stall| stall.to - stall.from).collect();
    let (sum, longest) = (lengths.iter().sum::<Timestamp>(), lengths.iter().max());
    let _ = writeln!(
        text,
        "{} stalls of {sum} ns, the longest of {} ns",
        lengths.len(),
        longest.unwrap_or(&0)
    );
    let names = |op: &&Operation| {
        let mut words = violation
            .what
            .split(|c: char| !(c.is_ascii_digit() || c == '.'));
        words.any(|word| word == op.id.to_string())
    };
    for op in operations.all.iter().filter(names) {
        let _ = writeln!(text, "{op:?}");
    }
    text
}

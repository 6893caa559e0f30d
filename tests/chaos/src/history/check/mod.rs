//! The rules that no history may violate.
//!
//! | rule | what must hold |
//! | --- | --- |
//! | A1 | two claims of one key overlap only if both are readers, or if different masters have granted them; of a semaphore no more than it has permits; a latch above 0 releases no waiter |
//! | A2 | of two grants one after the other the second has the higher fencing token, also after a master was lost |
//! | A4 | the resource refuses a write only if the claim of its owner had ended |
//! | A5 | a free key is soon granted to a waiter; somewhat later if other waiters are not polled |
//! | A6 | a wait ends on time, neither early nor late, and nothing is granted after it |
//! | A7 | the owner learns of a loss by its deadline, and by its next renewal if the server knows of the loss; soon after a hand-over and when a connection is re-established, and so after a master was lost |
//! | A8 | if grants are in order, no waiter is granted before an earlier waiter |
//! | A13 | a waiter for two keys is not overtaken again and again by later waiters for one of them |
//! | A11 | no error of an undeclared kind, none without a fault, and nothing that never ends |
//! | A12 | nothing is lost without a cause |
//! | A15 | if a hold has ended with its lease, nobody is granted the key before the margin is over |
//! | A16 | a wait until a key is free does not end while one owner has the key all the time |
//! | A17 | a detached hold is attached or released once, and is not lost without a cause |
//! | A18 | an extension makes a lease as long as was asked, and never shorter |
//!
//! A3, A10, A14, A19 and the rest of A11 are checked by the runs, on the resource, the server and the process. A9 is checked on the
//! numbers at the end, see [`wrong_sum`](super::wrong_sum). A watchdog that forgets a hold violates A12 alone.
//!
//! All bounds in time are relative to the stalls that processes recorded, see [`ProcessStalls`](super::ProcessStalls):
//! something is late only if it is late by more than the stalls that touch its bound. Without stalls they are exact.

mod answers;
mod detached;
mod exclusion;
mod free;
mod leases;
mod losses;
mod obstacles;
mod order;
mod wake_ups;

use std::fmt;

use self::obstacles::Obstacles;
use crate::history::{Claim, Operation, Operations, Timestamp, overlaps};

/// The bounds in time and number that a history is checked against, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The watchdog's lease.
    pub lease: Timestamp,
    /// How long a key may be free while somebody waits for it, without a fault.
    pub wake: Timestamp,
    /// How late a timer may be.
    pub late: Timestamp,
    /// How long a hold may count as held that was lost before it was handed over, or before the clients connected again.
    pub confirmed: Timestamp,
    /// How many later acquisitions of either key may be granted before one that waits for both.
    pub passes: usize,
    /// How long a waiter that is not polled may block others.
    pub absent: Timestamp,
    /// How long a fault still keeps clients from the server after its end, until they have connected again.
    pub aftermath: Timestamp,
    /// Whether grants follow the order of arrival.
    pub in_order: bool,
    /// How many may have a key at once; readers do not count among each other.
    pub capacity: u32,
    /// How long a client may take for what it does in the background.
    pub settle: Timestamp,
    /// How long before its end in the server a lease counts as ended.
    pub margin: Timestamp,
}

/// A violation of a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: &'static str,
    /// When.
    pub at: Timestamp,
    /// Which operation violated it, and how.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at as f64 / 1e9;
        write!(f, "{} at {at:.6} s: {}", self.rule, self.what)
    }
}

/// Looks for violations of all rules.
#[must_use]
pub fn check(operations: &Operations, bounds: &Bounds) -> Vec<Violation> {
    let mut checker = Checker {
        operations,
        bounds,
        obstacles: Obstacles { operations, bounds },
        found: Vec::new(),
    };
    for (key, ops) in operations.by_key() {
        let mut claims: Vec<(Claim, &Operation)> = ops
            .iter()
            .filter_map(|op| Some((op.claim(&operations.faults)?, *op)))
            .collect();
        claims.sort_by_key(|(claim, op)| (claim.from, op.id));
        checker.exclusion(key, &claims, &ops);
        checker.tokens(key, &ops);
        if bounds.in_order {
            checker.order(key, &ops);
        }
        checker.wake_ups(key, &ops);
        checker.margin(key, &ops);
        checker.seen_free(key, &claims, &ops);
        checker.latch_opened(key, &ops);
    }
    checker.passed();
    checker.taken_over();
    if bounds.capacity == 1 {
        for overlap in overlaps(operations) {
            let found = overlap.violations(operations, bounds);
            checker.found.extend(found);
        }
    }
    for op in &operations.all {
        checker.wait(op);
        checker.loss(op);
        checker.end(op);
        checker.extension(op);
    }
    checker.found.sort_by_key(|violation| violation.at);
    checker.found
}

struct Checker<'a> {
    operations: &'a Operations,
    bounds: &'a Bounds,
    obstacles: Obstacles<'a>,
    found: Vec<Violation>,
}

impl Checker<'_> {
    fn found(&mut self, rule: &'static str, at: Timestamp, what: String) {
        self.found.push(Violation { rule, at, what });
    }
}

//! A15 and A18: the margin at the end of a lease, and leases that are extended.

use super::Checker;
use crate::history::{Operation, Timestamp};

/// Servers count in whole milliseconds.
const ROUNDED: Timestamp = 2_000_000;

impl Checker<'_> {
    /// A15.
    pub(super) fn margin(&mut self, key: &str, ops: &[&Operation]) {
        if self.bounds.margin == 0 || self.bounds.capacity > 1 {
            return;
        }
        let faults = &self.operations.faults;
        let ended_with_its_lease = |op: &&&Operation| {
            let claim = op.claim(faults);
            claim.is_some_and(|claim| claim.to == op.deadline)
                && op.killed.is_none()
                // Somebody may have released it after that, who does not keep the margin.
                && op.taken.is_none()
                && op.wiped(faults).is_none()
        };
        for op in ops.iter().filter(ended_with_its_lease) {
            let over = (op.deadline + self.bounds.margin).saturating_sub(ROUNDED);
            let too_early = ops.iter().find(|next| {
                let granted = next.returned.filter(|_| next.granted);
                granted.is_some_and(|at| op.deadline <= at && at < over)
                    && !(op.shared && next.shared)
            });
            if let Some(next) = too_early {
                let what = format!(
                    "{key}: {} was granted within the margin of {}",
                    next.id, op.id
                );
                self.found("A15", op.deadline, what);
            }
        }
    }

    /// A18.
    pub(super) fn extension(&mut self, op: &Operation) {
        let Some(extended) = op.extended else {
            return;
        };
        let asked_for = (extended.asked + extended.lease).saturating_sub(self.bounds.margin);
        let least = asked_for.max(extended.before);
        if extended.deadline + self.bounds.late < least {
            let short = least - extended.deadline;
            let what = format!("{}: an extended lease is {short} ns too short", op.id);
            self.found("A18", extended.asked, what);
        }
    }
}

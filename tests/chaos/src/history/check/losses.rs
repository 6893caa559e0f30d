//! A7 and A12: the owner learns of a loss in time, and each loss has a cause.

use super::{Bounds, Checker};
use crate::history::{End, Operation};

impl Checker<'_> {
    /// A7 and A12.
    pub(super) fn loss(&mut self, op: &Operation) {
        let (Some(granted), true) = (op.returned, op.granted) else {
            return;
        };
        let Bounds {
            lease,
            late,
            confirmed,
            ..
        } = *self.bounds;
        let until = op.held_until(self.operations.end);
        if until > self.obstacles.late(op, op.deadline)
            && !self.obstacles.was_stopped(op, op.deadline, until)
        {
            let over = until - op.deadline;
            self.found(
                "A7",
                until,
                format!("{} held {over} ns past its deadline", op.id),
            );
        }
        let wiped = op
            .surely_wiped(&self.operations.faults)
            .filter(|fault| fault.from < until);
        if let Some(wiped) = wiped.filter(|_| op.lease.is_none()) {
            let stalls = self.operations.stalls.of(op.id.process);
            // A renewal that a fault met is sent again after a pause, and until then nothing is asked.
            let paused_since = wiped.from.saturating_sub(lease / 3);
            let was_handed_over = granted > wiped.to;
            let (within, since) = if wiped.reconnects || was_handed_over {
                (confirmed, paused_since)
            } else {
                (lease / 3 + late, wiped.from)
            };
            let known = stalls.deadline(wiped.to.max(granted), within);
            let affected = self.obstacles.was_obstructed(op, since, known);
            if until > known && !affected && !self.obstacles.was_stopped(op, wiped.from, known) {
                let over = until - wiped.to;
                let what = format!("{} was told {over} ns after its lock was wiped", op.id);
                self.found("A7", until, what);
            }
        }
        let lost_at = match (&op.ended, op.ending) {
            // The release had no answer until the end of the lease.
            (Some((at, End::Lost)), Some(ending))
                if *at >= op.deadline && self.obstacles.any_fault(ending, *at, None) =>
            {
                None
            }
            (Some((at, End::Lost)), _) => Some(*at),
            _ => op.loss_reported,
        };
        if let Some(lost_at) = lost_at.filter(|_| op.lease.is_none()) {
            let since = op.deadline.saturating_sub(lease);
            let kept_away = self.obstacles.kept_away(op, since, lost_at);
            let wiped = op.wiped(&self.operations.faults);
            if kept_away < lease / 3 && wiped.is_none_or(|fault| fault.from > lost_at) {
                let what = format!(
                    "{} was lost, kept from the server for {kept_away} ns",
                    op.id
                );
                self.found("A12", lost_at, what);
            }
        }
    }
}

//! A1 and A4: two claims of one key never overlap, and the resource refuses no entitled write.

use super::Checker;
use crate::history::failover::explanation;
use crate::history::{Claim, Operation, Timestamp, latch};

/// The process that has the resource.
const TESTER: u32 = 0;

impl Checker<'_> {
    /// A1 and A4.
    pub(super) fn exclusion(
        &mut self,
        key: &str,
        claims: &[(Claim, &Operation)],
        ops: &[&Operation],
    ) {
        let faults = &self.operations.faults;
        let is_alone = self.bounds.capacity == 1;
        let mut over_failovers: Vec<_> = if is_alone {
            ops.iter()
                .filter_map(|op| Some((op.claim_over_failovers(faults)?, *op)))
                .collect()
        } else {
            // With many owners, it is unknown which of them the new master lacks.
            claims.to_vec()
        };
        over_failovers.sort_by_key(|(claim, op)| (claim.from, op.id));
        let mut inside: Vec<&(Claim, &Operation)> = Vec::new();
        for next in over_failovers
            .iter()
            .filter(|(claim, _)| claim.from < claim.to)
        {
            inside.retain(|(claim, _)| claim.to > next.0.from);
            let in_the_way = |(_, op): &&&(Claim, &Operation)| {
                let share = op.shared && next.1.shared;
                !(share || is_alone && explanation(faults, op, next.1).is_some())
            };
            let mut others: Vec<_> = inside.iter().filter(in_the_way).collect();
            others.sort_by_key(|(claim, _)| claim.to);
            // The capacity was reached already, until the first of the others ends.
            if others.len() >= self.bounds.capacity as usize {
                let first = others.len() - self.bounds.capacity as usize;
                let (claim, op) = others[first];
                let for_ns = claim.to.min(next.0.to) - next.0.from;
                let what = format!("{key}: {} and {} overlap for {for_ns} ns", op.id, next.1.id);
                self.found("A1", next.0.from, what);
            }
            inside.push(next);
        }
        if self.bounds.capacity > 1 {
            // The resource lets in one at a time.
            return;
        }
        for (claim, op) in claims {
            // It entered between its grant and the time that it recorded.
            if let (Some(granted), Some((at, false))) = (op.returned, op.wrote)
                && at < claim.to
                && !self.displaced(claims, op, granted, at)
            {
                let what = format!("{key}: {} was entitled to write", op.id);
                self.found("A4", at, what);
            }
        }
    }

    /// Whether an owner entered between the two times although its claim had ended: it did not know yet, or was stopped before it
    /// could enter. The resource then refuses the entitled owner, since it cannot tell them apart without a token.
    pub(super) fn displaced(
        &self,
        claims: &[(Claim, &Operation)],
        entitled: &Operation,
        from: Timestamp,
        to: Timestamp,
    ) -> bool {
        claims.iter().any(|(claim, op)| {
            op.id != entitled.id
                && match op.entered {
                    Some(at) => from < at && at < self.obstacles.late(op, to) && claim.to <= at,
                    // It was cut short, perhaps while it entered. What another process has sent by then still arrives.
                    None => {
                        let end = op.held_until(self.operations.end);
                        let end = match op.id.process {
                            TESTER => end,
                            _ => self.obstacles.late(op, end),
                        };
                        claim.from < to && end > from
                    }
                }
        })
    }

    /// A1, of latches.
    pub(super) fn latch_opened(&mut self, key: &str, ops: &[&Operation]) {
        let eras = latch::above_0(ops, self.bounds.settle);
        for op in ops.iter().filter(|op| op.latch_opened) {
            let Some(returned) = op.returned else {
                continue;
            };
            let before = eras.partition_point(|era| era.from <= op.called);
            if eras[..before].iter().any(|era| returned <= era.to) {
                let what = format!("{key}: {} was let go before the count was 0", op.id);
                self.found("A1", returned, what);
            }
        }
    }
}

//! A5 and A13: a waiter is granted soon after the key is free, and later waiters do not overtake it again and again.

use super::Checker;
use crate::history::{Claim, Fault, Operation, Timestamp, Wiped, latch};

impl Checker<'_> {
    /// A5.
    pub(super) fn wake_ups(&mut self, key: &str, ops: &[&Operation]) {
        let mut gaps = self.gaps(ops);
        let dry = self.exhausted_from(ops);
        gaps.retain_mut(|(from, to)| {
            *to = dry.min(*to);
            from < to
        });
        let waits = |op: &&&Operation| op.wait != Some(0) && op.change.is_none();
        for op in ops.iter().filter(waits) {
            let until = op.waited_until(self.operations.end);
            let since = op.polled_since();
            let first = gaps.partition_point(|(_, to)| *to <= since);
            for (from, to) in gaps[first..].iter().take_while(|(from, _)| *from < until) {
                let (from, to) = (since.max(*from), until.min(*to));
                let wake = self.bounds.wake
                    + self.kept_by_unpolled(ops, from, to)
                    + self.kept_by_detached(ops, from, to);
                if to > from + wake && self.neglected(key, from, to, wake) {
                    let waited = to - from;
                    let what = format!("{key}: {} waited {waited} ns beside a free key", op.id);
                    self.found("A5", from, what);
                    return;
                }
            }
        }
    }

    /// How long waiters that were not polled may have blocked the key, one after the other. The client then releases what they
    /// were granted.
    fn kept_by_unpolled(&self, ops: &[&Operation], from: Timestamp, to: Timestamp) -> Timestamp {
        let in_the_way = ops.iter().filter(|op| op.was_unpolled(from, to));
        in_the_way.map(|_| self.bounds.absent).sum()
    }

    /// How long a detached hold may still block the key: a renewal that was not answered may have lengthened its lease, and a late copy
    /// of its attempt is ended by nobody if the process that attached it was killed.
    fn kept_by_detached(&self, ops: &[&Operation], from: Timestamp, to: Timestamp) -> Timestamp {
        let kept = self.bounds.lease;
        let blocks = |op: &&Operation| {
            let last = op.deadline.max(op.returned.unwrap_or(op.called));
            op.called < to && from < last + kept
        };
        let mut detached = ops.iter().filter(|op| op.detached);
        if detached.any(blocks) { kept } else { 0 }
    }

    /// A13. A later waiter overtakes it if it is granted one of its keys meanwhile.
    pub(super) fn passed(&mut self) {
        let keys = self.operations.by_key();
        let of_key = |key: &str| keys.get(key).into_iter().flatten();
        for op in &self.operations.all {
            let Some(other_key) = &op.other_key else {
                continue;
            };
            let (called, until) = (op.polled_since(), op.waited_until(self.operations.end));
            let passed = |later: &&&Operation| {
                let granted = later.returned.filter(|_| later.granted);
                later.called > called && granted.is_some_and(|at| at < until)
            };
            let passed = of_key(&op.key).chain(of_key(other_key)).filter(passed);
            let passes = passed.count();
            if passes > self.bounds.passes {
                let what = format!("{} was passed by {passes} that came later", op.id);
                self.found("A13", until, what);
            }
        }
    }

    /// The time since when all permits may be lost for ever.
    fn exhausted_from(&self, ops: &[&Operation]) -> Timestamp {
        let leaked_permits = ops
            .iter()
            .filter_map(|op| op.leaked_permit(self.bounds.settle));
        let mut since: Vec<Timestamp> = leaked_permits.map(|(since, _)| since).collect();
        since.sort_unstable();
        let last = since.get((self.bounds.capacity as usize).saturating_sub(1));
        last.copied().unwrap_or(Timestamp::MAX)
    }

    /// The times in which no owner had a claim, or a latch was at 0.
    fn gaps(&self, ops: &[&Operation]) -> Vec<(Timestamp, Timestamp)> {
        if ops.iter().any(|op| op.change.is_some()) {
            return latch::at_0(ops, self.bounds.settle);
        }
        let faults = &self.operations.faults;
        let mut claims: Vec<Claim> = ops
            .iter()
            .filter_map(|op| op.longest_claim(faults))
            .collect();
        claims.sort_by_key(|claim| claim.from);
        let (mut gaps, mut free_since) = (Vec::new(), 0);
        for claim in claims {
            if claim.from > free_since {
                gaps.push((free_since, claim.from));
            }
            free_since = free_since.max(claim.to);
        }
        gaps.push((free_since, self.operations.end.max(free_since)));
        gaps
    }

    /// Whether a waiter for the key had to be granted between the two times: there was long enough without faults that still
    /// had to heal, and without stalls.
    fn neglected(&self, key: &str, from: Timestamp, to: Timestamp, wake: Timestamp) -> bool {
        let stalls = self.operations.stalls.all();
        let due = |calm_since| stalls.deadline(calm_since, wake);
        let mut calm_since = from;
        let concerns = |fault: &&Fault| match &fault.wiped {
            Wiped::One(wiped) => wiped == key,
            Wiped::Nothing | Wiped::Everything | Wiped::Unreplicated { .. } => {
                !fault.is_unnoticed()
            }
        };
        for fault in self.operations.faults.iter().filter(concerns) {
            if fault.from >= to.min(due(calm_since)) {
                break;
            }
            calm_since = calm_since.max(fault.to + fault.heals);
        }
        to > due(calm_since)
    }
}

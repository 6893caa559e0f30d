//! A2 and A8: fencing tokens grow, and grants follow the order of arrival.

use super::Checker;
use crate::history::{Operation, Timestamp};

impl Checker<'_> {
    /// A2. Of two concurrent requests either may be the first. An attached hold has the token of its grant.
    pub(super) fn tokens(&mut self, key: &str, ops: &[&Operation]) {
        let granted = |op: &&Operation| Some((op.returned?, op.called, op.token?, op.id));
        let ops = ops.iter().filter(|op| op.takes.is_none());
        let mut granted: Vec<_> = ops.filter_map(granted).collect();
        granted.sort_unstable();
        // The highest token of all that were granted before a call.
        let mut highest: Vec<(Timestamp, u64)> = Vec::with_capacity(granted.len());
        for (returned, _, token, _) in &granted {
            let before = highest.last().map_or(0, |(_, token)| *token);
            highest.push((*returned, before.max(*token)));
        }
        for (returned, called, token, id) in &granted {
            let earlier = highest.partition_point(|(at, _)| at < called);
            let Some((_, before)) = earlier.checked_sub(1).map(|at| highest[at]) else {
                continue;
            };
            if *token <= before {
                let what = format!("{key}: {id} has the token {token} after {before}");
                self.found("A2", *returned, what);
            }
        }
    }

    /// A8. Where no fault kept the first from its place. Nobody stands in line to attach a hold.
    pub(super) fn order(&mut self, key: &str, ops: &[&Operation]) {
        let late = |from| {
            self.operations
                .stalls
                .all()
                .deadline(from, self.bounds.late)
        };
        let granted = |op: &&Operation| {
            let was_in_line = op.granted && op.takes.is_none();
            was_in_line.then_some((op.called, op.returned?, op.id))
        };
        let granted: Vec<_> = ops.iter().filter_map(granted).collect();
        for (called, returned, id) in &granted {
            let overtaken = granted.iter().find(|(before, after, _)| {
                before + self.bounds.late < *called
                    && *after > returned + self.bounds.late
                    && *called > late(*before)
                    && *after > late(*returned)
                    && !self.obstacles.any_fault(*before, *returned, None)
            });
            if let Some((_, _, first)) = overtaken {
                let what = format!("{key}: {id} was granted before {first}, which came first");
                self.found("A8", *returned, what);
            }
        }
    }
}

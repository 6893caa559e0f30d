//! A17: a detached hold is attached or released once, and is not lost without a cause.

use std::collections::HashMap;

use super::Checker;
use crate::history::{Fault, Id, Operation, Refusal, Timestamp};

impl Checker<'_> {
    /// A17.
    pub(super) fn taken_over(&mut self) {
        let all = &self.operations.all;
        let sources: HashMap<Id, &Operation> = all.iter().map(|op| (op.id, op)).collect();
        let mut taken: HashMap<Id, Vec<&Operation>> = HashMap::new();
        for op in all {
            if let Some(from) = op.takes {
                taken.entry(from).or_default().push(op);
            }
        }
        for (from, takers) in taken {
            let Some(source) = sources.get(&from) else {
                continue;
            };
            let had = takers.iter().filter(|op| op.granted || op.freed);
            let mut had: Vec<_> = had.collect();
            had.sort_by_key(|op| op.returned);
            if let [first, second, ..] = had[..] {
                let at = second.returned.unwrap_or(second.called);
                if !self.is_back(source, first, at) {
                    let what =
                        format!("{} and {} have had the hold of {from}", first.id, second.id);
                    self.found("A17", at, what);
                }
            }
            for op in &takers {
                let Some(at) = op.returned.filter(|_| op.refused == Some(Refusal::Lost)) else {
                    continue;
                };
                if !self.has_gone(source, op, &takers, at) {
                    let what = format!("{} has not found the hold of {from}", op.id);
                    self.found("A17", at, what);
                }
            }
        }
    }

    /// Whether the server may have had the hold again by then, after the first one had taken it over: it may have been an earlier
    /// copy of itself, or an attempt of the former owner may have come late. The guide says so.
    fn is_back(&self, source: &Operation, first: &Operation, until: Timestamp) -> bool {
        let meets = |fault: &Fault| fault.hit && fault.from <= until && fault.to >= first.called;
        let mut faults = self.operations.faults.iter().filter(|fault| meets(fault));
        faults.any(|fault| {
            let comes_late = fault.delays_attempts && fault.from <= source.held_since;
            comes_late || fault.brings_back()
        })
    }

    /// Whether the hold may have been gone by then.
    fn has_gone(
        &self,
        source: &Operation,
        op: &Operation,
        takers: &[&Operation],
        at: Timestamp,
    ) -> bool {
        let others = takers.iter().filter(|other| other.id != op.id);
        let mut maybe = others.filter(|other| other.refused != Some(Refusal::Lost));
        let wiped = source.wiped(&self.operations.faults);
        source.deadline <= at
            || self.obstacles.any_fault(source.called, at, None)
            || maybe.any(|other| other.called <= at)
            || wiped.is_some_and(|fault| fault.from <= at)
    }
}

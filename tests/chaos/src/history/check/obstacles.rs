//! What kept a process from its server, or from its work: faults, their aftermath, and stalls.

use distlock_tests::pulse::Stall;

use super::Bounds;
use crate::history::{Affected, Fault, Operation, Operations, Timestamp};

/// The faults and the stalls of a run.
#[derive(Clone, Copy)]
pub(super) struct Obstacles<'a> {
    pub(super) operations: &'a Operations,
    pub(super) bounds: &'a Bounds,
}

impl Obstacles<'_> {
    /// The last moment that is not late for what an operation's process has to do at this time.
    pub(super) fn late(&self, op: &Operation, due: Timestamp) -> Timestamp {
        let stalls = self.operations.stalls.of(op.id.process);
        stalls.deadline(due, self.bounds.late)
    }

    /// Whether there was a fault between the two times, of this kind or of any, or one that still had to heal.
    pub(super) fn any_fault(&self, from: Timestamp, to: Timestamp, kind: Option<&str>) -> bool {
        let mut faults = self.operations.faults.iter();
        faults.any(|fault| {
            let meant = kind.is_none_or(|kind| kind == fault.kind);
            meant && fault.from <= to && fault.to + fault.heals >= from
        })
    }

    /// Whether there was a fault between the two times, or whether a command may have timed out because of stalls. A reply
    /// depends on the server and the proxy too, whose short stalls are not recorded: a third of the timeout in known stalls is enough.
    pub(super) fn any_obstacle(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
        let timeout = self.bounds.lease / 6;
        let stalls = self.operations.stalls.of(op.id.process);
        // A command may have been delayed before its timeout began.
        let stalls = stalls.between(from.saturating_sub(timeout), to);
        let stalled: Timestamp = stalls.map(|stall| stall.to - stall.from).sum();
        let mut faults = self.operations.faults.iter();
        let was_disturbed = |fault: &Fault| {
            let meets = fault.from <= to && fault.to + fault.heals >= from;
            meets && !fault.is_unnoticed()
        };
        stalled > timeout / 3 || faults.any(was_disturbed)
    }

    /// Whether a command can time out during a stall. Clients wait a sixth of the lease for a reply.
    pub(super) fn times_out(&self, stall: Stall) -> bool {
        stall.to - stall.from >= self.bounds.lease / 6
    }

    /// The faults that kept an operation's process from the server between two times, with their aftermath.
    pub(super) fn obstructions(
        &self,
        op: &Operation,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let (process, aftermath) = (op.id.process, self.bounds.aftermath);
        let faults = self.operations.faults.iter();
        let theirs = faults.filter(move |fault| match fault.affected {
            Affected::Nobody | Affected::Unnoticed => false,
            Affected::Process(stopped) => stopped == process,
            Affected::Everybody => true,
        });
        let spans = theirs.map(move |fault| (fault.from, fault.to + aftermath));
        spans.filter(move |(begin, end)| *begin <= to && *end >= from)
    }

    pub(super) fn was_obstructed(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
        self.obstructions(op, from, to).next().is_some()
    }

    /// How long faults and stalls kept an operation's process from the server between two times.
    pub(super) fn kept_away(&self, op: &Operation, from: Timestamp, to: Timestamp) -> Timestamp {
        let aftermath = |stall| {
            if self.times_out(stall) {
                self.bounds.aftermath
            } else {
                0
            }
        };
        let stalls = self.operations.stalls.of(op.id.process);
        let stalls = stalls.between(from.saturating_sub(self.bounds.aftermath), to);
        let stalls = stalls.map(|stall| (stall.from, stall.to + aftermath(stall)));
        let mut spans: Vec<_> = self.obstructions(op, from, to).chain(stalls).collect();
        spans.sort_unstable();
        let (mut total, mut counted) = (0, from);
        for (begin, end) in spans {
            let until = end.min(to);
            total += until.saturating_sub(begin.max(counted));
            counted = counted.max(until);
        }
        total
    }

    /// Whether a fault stopped the operation's process between the two times.
    pub(super) fn was_stopped(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
        let stopped = Affected::Process(op.id.process);
        let mut faults = self.operations.faults.iter();
        faults.any(|fault| {
            fault.affected == stopped && fault.from < to && fault.to + self.bounds.late > from
        })
    }
}

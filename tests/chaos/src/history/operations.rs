//! All operations of a run, put together from its events.

use std::collections::{BTreeMap, HashMap};

use super::{Event, EventKind, Fault, Id, Operation, ProcessStalls, Timestamp, Wiped};

/// All operations of a run, in the order of their calls, and the faults.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// The operations.
    pub all: Vec<Operation>,
    /// The faults, in the order of their begins.
    pub faults: Vec<Fault>,
    /// The times in which a process did not run, although no fault stopped it.
    pub stalls: ProcessStalls,
    /// When the last event was.
    pub end: Timestamp,
}

impl Operations {
    /// Puts the events of each operation together; `lease` is the watchdog's.
    #[must_use]
    pub fn from_events(events: &[Event], lease: Timestamp) -> Self {
        let mut all: BTreeMap<Id, Operation> = BTreeMap::new();
        let (mut faults, mut kills, mut end) = (Vec::new(), Vec::new(), 0);
        let mut stalls = Vec::new();
        for Event { at, what } in events {
            end = end.max(*at);
            match what {
                EventKind::Fault(fault) => faults.push(fault.clone()),
                EventKind::Stalled { process, stall } => stalls.push((*process, *stall)),
                EventKind::Killed { process } => kills.push((*process, *at)),
                EventKind::Called { id, .. }
                | EventKind::Granted { id, .. }
                | EventKind::Refused { id, .. }
                | EventKind::Unpolled { id }
                | EventKind::Polled { id }
                | EventKind::Abandoned { id }
                | EventKind::Takes { id, .. }
                | EventKind::Freed { id }
                | EventKind::SeenFree { id }
                | EventKind::Extended { id, .. }
                | EventKind::Entered { id }
                | EventKind::Wrote { id, .. }
                | EventKind::LossReported { id }
                | EventKind::LatchOpened { id }
                | EventKind::Changing { id, .. }
                | EventKind::Changed { id, .. }
                | EventKind::Ending { id, .. }
                | EventKind::Ended { id, .. } => {
                    let op = all.entry(*id).or_insert_with(|| Operation::new(*id, *at));
                    op.apply(*at, what);
                }
            }
        }
        let mut all: Vec<Operation> = all.into_values().collect();
        all.sort_by_key(|op| op.called);
        // At the end, because the last lines of a killed process may describe what it did while the signal was on its way.
        for (process, at) in kills {
            let theirs = all.iter_mut().filter(|op| op.id.process == process);
            for op in theirs {
                op.died = Some(at.max(op.called));
                if op.ended.is_none() {
                    op.killed = op.died;
                }
            }
        }
        trace_back(&mut all, lease);
        take_over(&mut all);
        faults.sort_by_key(|fault| fault.from);
        let stalls: ProcessStalls = stalls.into_iter().collect();
        for fault in &mut faults {
            // A process that stood still learns of the new master later.
            if let Wiped::Unreplicated { until, .. } = &mut fault.wiped
                && *until > fault.to
            {
                *until = stalls.all().deadline(fault.to, *until - fault.to);
            }
        }
        Self {
            all,
            faults,
            stalls,
            end,
        }
    }

    /// The operations of each key.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Operation>> {
        let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for op in &self.all {
            keys.entry(&op.key).or_default().push(op);
        }
        keys
    }
}

/// Notes of each detached hold when somebody began to take it over, and when that was done.
fn take_over(all: &mut [Operation]) {
    let mut taken: HashMap<Id, (Timestamp, Timestamp)> = HashMap::new();
    for op in all.iter() {
        if let Some(from) = op.takes {
            let done = op.returned.filter(|_| op.granted || op.freed);
            let (called, until) = taken.entry(from).or_insert((op.called, Timestamp::MAX));
            *called = (*called).min(op.called);
            *until = (*until).min(done.unwrap_or(Timestamp::MAX));
        }
    }
    for op in all {
        op.taken = taken.get(&op.id).copied();
    }
}

/// Finds the beginning of each hold: it may have been handed over from one operation to the next.
fn trace_back(all: &mut [Operation], lease: Timestamp) {
    let mut first: HashMap<String, Timestamp> = HashMap::new();
    let mut granted: Vec<&mut Operation> = all.iter_mut().filter(|op| op.granted).collect();
    granted.sort_by_key(|op| op.returned);
    for op in granted {
        if let (Some(owner), Some(returned)) = (&op.owner, op.returned) {
            op.held_since = *first.entry(owner.clone()).or_insert(returned);
            let lease = op.lease.unwrap_or(lease);
            op.lease_requested = op.granted_until.saturating_sub(lease);
            let lease = op.extended.map_or(lease, |extension| extension.lease);
            op.last_requested = op.deadline.saturating_sub(lease).max(op.lease_requested);
        }
    }
}

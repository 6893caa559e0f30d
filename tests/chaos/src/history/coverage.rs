//! How much a run tested: faults that met operations, and operations that met each other.

use std::collections::BTreeMap;

use super::{Claim, Operation, Operations, Wiped, latch};

/// The faults of each kind: how many met an operation, and how many there were.
#[must_use]
pub fn fault_coverage(operations: &Operations) -> BTreeMap<String, (usize, usize)> {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for fault in &operations.faults {
        let under_way = |op: &Operation| {
            let until = op.waited_until(operations.end);
            let until = if op.granted {
                op.held_until(operations.end)
            } else {
                until
            };
            let concerned = match &fault.wiped {
                Wiped::One(key) => *key == op.key,
                Wiped::Nothing | Wiped::Everything | Wiped::Unreplicated { .. } => true,
            };
            concerned && op.called <= fault.to && until >= fault.from
        };
        let kind = kinds.entry(fault.kind.clone()).or_default();
        kind.0 += usize::from(fault.hit && operations.all.iter().any(under_way));
        kind.1 += 1;
    }
    kinds
}

/// How many operations had to wait for another's claim.
#[must_use]
pub fn contended(operations: &Operations) -> usize {
    let mut contended = 0;
    for ops in operations.by_key().into_values() {
        let mut claims: Vec<Claim> = ops
            .iter()
            .filter_map(|op| op.claim(&operations.faults))
            .collect();
        claims.extend(latch::above_0(&ops, 0));
        claims.sort_by_key(|claim| claim.from);
        contended += ops
            .iter()
            .filter(|op| {
                let until = op.waited_until(operations.end);
                let first = claims.partition_point(|claim| claim.to <= op.called);
                claims[first..].iter().any(|claim| {
                    claim.from < until && claim.to > op.called && Some(claim.from) != op.returned
                })
            })
            .count();
    }
    contended
}

//! What may overlap because another master took the place of the old one.
//!
//! Replication is asynchronous: a replica that becomes the master may lack what the old master granted last. Then the old
//! owner and a new one both rely on the lock, until the old one learns of it. Only a fencing token tells the two apart.
//!
//! An old master that was not killed goes on granting until its clients have heard of the new one. So either of the two
//! grants may be the later one. The token tells them apart in both orders, because it is the server's time at least.
//!
//! What is not found: a history does not say which master has granted what. If two owners were both granted a lock between
//! the begin of a failover and the time by which all clients have left the old master, different masters are assumed to have
//! done that. Those are some seconds where the old master goes on, and next to nothing where it was killed.

use super::{Affected, Bounds, Fault, Operation, Operations, Timestamp, Violation, Wiped};

/// Two owners that rely on one lock, because different masters have granted it to them.
#[derive(Clone, Copy, Debug)]
pub struct Overlap<'a> {
    /// The owner that was granted the lock first.
    pub first: &'a Operation,
    /// The owner that was granted it later.
    pub second: &'a Operation,
    /// How the master was lost.
    pub fault: &'a Fault,
    /// When one of them stopped to rely on it.
    pub to: Timestamp,
}

impl Overlap<'_> {
    /// A2 and A7: a fencing token tells the two owners apart, and one of them learns of it soon after its client can reach the new
    /// master.
    pub(super) fn violations(&self, operations: &Operations, bounds: &Bounds) -> Vec<Violation> {
        let (first, second) = (self.first, self.second);
        let began = second.returned.unwrap_or(self.fault.from);
        let (mut found, key) = (Vec::new(), &first.key);
        if let (Some(before), Some(after)) = (first.token, second.token) {
            // Two masters may answer requests that were made at the same time in either order.
            let one_after_the_other = first.returned.is_none_or(|at| at < second.called);
            let is_wrong = if one_after_the_other {
                after <= before
            } else {
                after == before
            };
            if is_wrong {
                let (rule, id) = ("A2", second.id);
                let what =
                    format!("{key}: {id} has the token {after} of another master after {before}");
                found.push(Violation {
                    rule,
                    at: began,
                    what,
                });
            }
        }
        let due = self.told_by(operations, bounds);
        if self.to > due && !self.is_obstructed(operations, bounds, due) {
            let (rule, at, over) = ("A7", self.to, self.to - began);
            let (first, second) = (first.id, second.id);
            let what = format!("{key}: {first} and {second} relied on it for {over} ns together");
            found.push(Violation { rule, at, what });
        }
        found
    }

    /// When one of the owners has to be told. Clients leave a master that goes on granting when they hear of the new one,
    /// and state all holds to that one at once.
    fn told_by(&self, operations: &Operations, bounds: &Bounds) -> Timestamp {
        match &self.fault.wiped {
            Wiped::Unreplicated { until, .. } if *until > self.fault.to => *until,
            _ => {
                let began = self.second.returned.unwrap_or(self.fault.from);
                let reachable = (self.fault.to + bounds.aftermath).max(began);
                let stalls = operations.stalls.of(self.first.id.process);
                stalls.deadline(reachable, bounds.confirmed)
            }
        }
    }

    /// Whether another fault kept one of the owners from hearing of it until this time.
    fn is_obstructed(&self, operations: &Operations, bounds: &Bounds, until: Timestamp) -> bool {
        let processes = [self.first.id.process, self.second.id.process];
        let mut faults = operations.faults.iter();
        faults.any(|fault| {
            let concerned = match fault.affected {
                Affected::Nobody | Affected::Unnoticed => false,
                Affected::Process(stopped) => processes.contains(&stopped),
                Affected::Everybody => fault != self.fault,
            };
            let meets = fault.from <= until && fault.to + bounds.aftermath >= self.fault.to;
            concerned && meets
        })
    }
}

/// All overlaps of owners that different masters may have granted the lock.
#[must_use]
pub fn overlaps(operations: &Operations) -> Vec<Overlap<'_>> {
    let faults = &operations.faults;
    let mut overlaps = Vec::new();
    for ops in operations.by_key().into_values() {
        let claims = ops
            .into_iter()
            // Nobody relies on a hold that is detached.
            .filter(|op| !op.detached)
            .filter_map(|op| Some((op.longest_claim(faults)?, op)));
        let mut claims: Vec<_> = claims.filter(|(claim, _)| claim.from < claim.to).collect();
        claims.sort_by_key(|(claim, op)| (claim.from, op.id));
        for (at, (claim, second)) in claims.iter().enumerate() {
            let earlier = claims[..at].iter().filter(|(earlier, first)| {
                earlier.to > claim.from && !(first.shared && second.shared)
            });
            overlaps.extend(earlier.filter_map(|(earlier, first)| {
                Some(Overlap {
                    first,
                    second,
                    fault: explanation(faults, first, second)?,
                    to: earlier.to.min(claim.to),
                })
            }));
        }
    }
    overlaps
}

/// The loss of a master because of which two owners may have been granted a lock by different masters.
pub(super) fn explanation<'a>(
    faults: &'a [Fault],
    one: &Operation,
    other: &Operation,
) -> Option<&'a Fault> {
    let explains = |fault: &&Fault| {
        // The new master may lack the grant of the first one, and it may have granted the lock to the second.
        let apart = |old: &Operation, new: &Operation| {
            old.may_be_wiped_by(fault) && new.returned.is_some_and(|at| at >= fault.from)
        };
        fault.wiped.is_failover() && (apart(one, other) || apart(other, one))
    };
    faults.iter().find(explains)
}

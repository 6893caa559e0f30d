//! The rules that no history may violate.
//!
//! | rule | what must hold |
//! | --- | --- |
//! | A1 | two claims of one key overlap only if both are readers, or if different masters have granted them; of a semaphore no more than it has permits; nobody is let go by a latch above 0 |
//! | A2 | of two grants one after the other the second has the higher fencing token, also after a master was lost |
//! | A4 | the resource refuses only writes of those whose claim had ended |
//! | A5 | while a key is free and somebody waits for it, it is soon granted; somewhat later beside waiters that are not polled |
//! | A6 | a wait ends on time, neither early nor late, and nothing is granted after it |
//! | A7 | a loss is told by the deadline, and where the server knows, by the next renewal; soon after a hand-over and when a connection stands anew, and so after a master was lost |
//! | A8 | where grants are in order nobody is granted before one that came first and is granted later |
//! | A13 | a waiter for two keys is not passed again and again by later ones that want one of them |
//! | A11 | no error of an undeclared kind, none without a fault, and nothing that never ends |
//! | A12 | nothing is lost without a cause |
//!
//! A3, A10, A14 and the rest of A11 are checked by the runs, on the resource, the server and the process. A9 is checked on the
//! numbers at the end, see [`wrong_sum`](super::wrong_sum). A watchdog that forgets a hold violates A12 alone.
//!
//! All bounds in time are relative to the stalls that processes recorded, see [`ProcessStalls`](super::ProcessStalls):
//! something is late only if it is late by more than the stalls that touch its bound. Without stalls they are exact.

use std::fmt;

use distlock_tests::pulse::Stall;

use super::{
    Affected, Claim, End, Fault, Operation, Operations, Refusal, Timestamp, Wiped,
    failover::explanation, latch, overlaps,
};

/// The bounds in time and number that a history is checked against, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The watchdog's lease.
    pub lease: Timestamp,
    /// How long a key may be free while somebody waits for it, without a fault.
    pub wake: Timestamp,
    /// How late a timer may be.
    pub late: Timestamp,
    /// How long a hold may count as held that was lost before it was handed over, or before the clients connected again.
    pub confirmed: Timestamp,
    /// How many later acquisitions of either key may be granted before one that waits for both.
    pub passes: usize,
    /// How long a waiter that is not polled may be in the way of others.
    pub absent: Timestamp,
    /// How long a fault still keeps clients from the server after its end, until they have connected again.
    pub aftermath: Timestamp,
    /// Whether grants follow the order of arrival.
    pub in_order: bool,
    /// How many may have a key at once; readers do not count among each other.
    pub capacity: u32,
    /// How long a client may take for what it does in the background.
    pub settle: Timestamp,
}

/// A violation of a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: &'static str,
    /// When.
    pub at: Timestamp,
    /// Which operation violated it, and how.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at as f64 / 1e9;
        write!(f, "{} at {at:.6} s: {}", self.rule, self.what)
    }
}

/// Looks for violations of all rules.
#[must_use]
pub fn check(operations: &Operations, bounds: &Bounds) -> Vec<Violation> {
    let mut checker = Checker {
        operations,
        bounds,
        found: Vec::new(),
    };
    for (key, ops) in operations.by_key() {
        let mut claims: Vec<(Claim, &Operation)> = ops
            .iter()
            .filter_map(|op| Some((op.claim(&operations.faults)?, *op)))
            .collect();
        claims.sort_by_key(|(claim, op)| (claim.from, op.id));
        checker.exclusion(key, &claims, &ops);
        checker.tokens(key, &ops);
        if bounds.in_order {
            checker.order(key, &ops);
        }
        checker.wake_ups(key, &ops);
        checker.latch_opened(key, &ops);
    }
    checker.passed();
    if bounds.capacity == 1 {
        for overlap in overlaps(operations) {
            let found = overlap.violations(operations, bounds);
            checker.found.extend(found);
        }
    }
    for op in &operations.all {
        checker.wait(op);
        checker.loss(op);
        checker.end(op);
    }
    checker.found.sort_by_key(|violation| violation.at);
    checker.found
}

/// The process that has the resource.
const TESTER: u32 = 0;

struct Checker<'a> {
    operations: &'a Operations,
    bounds: &'a Bounds,
    found: Vec<Violation>,
}

impl Checker<'_> {
    fn found(&mut self, rule: &'static str, at: Timestamp, what: String) {
        self.found.push(Violation { rule, at, what });
    }

    /// A1 and A4.
    fn exclusion(&mut self, key: &str, claims: &[(Claim, &Operation)], ops: &[&Operation]) {
        let faults = &self.operations.faults;
        let is_alone = self.bounds.capacity == 1;
        let mut over_failovers: Vec<_> = if is_alone {
            ops.iter()
                .filter_map(|op| Some((op.claim_over_failovers(faults)?, *op)))
                .collect()
        } else {
            // Of many owners nobody knows which ones the new master lacks.
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

    /// A2. Of two concurrent requests either may be the first.
    fn tokens(&mut self, key: &str, ops: &[&Operation]) {
        let granted = |op: &&Operation| Some((op.returned?, op.called, op.token?, op.id));
        let mut granted: Vec<_> = ops.iter().filter_map(granted).collect();
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

    /// A8. Where no fault kept the first from its place.
    fn order(&mut self, key: &str, ops: &[&Operation]) {
        let late = |from| {
            self.operations
                .stalls
                .all()
                .deadline(from, self.bounds.late)
        };
        let granted = |op: &&Operation| op.granted.then_some((op.called, op.returned?, op.id));
        let granted: Vec<_> = ops.iter().filter_map(granted).collect();
        for (called, returned, id) in &granted {
            let overtaken = granted.iter().find(|(before, after, _)| {
                before + self.bounds.late < *called
                    && *after > returned + self.bounds.late
                    && *called > late(*before)
                    && *after > late(*returned)
                    && !self.any_fault(*before, *returned, None)
            });
            if let Some((_, _, first)) = overtaken {
                let what = format!("{key}: {id} was granted before {first}, which came first");
                self.found("A8", *returned, what);
            }
        }
    }

    /// Whether an owner entered between the two times whose claim had ended: it was not told yet, or was stopped before it
    /// could enter. That makes the resource refuse the entitled one, since without a token it cannot tell them apart.
    fn displaced(
        &self,
        claims: &[(Claim, &Operation)],
        entitled: &Operation,
        from: Timestamp,
        to: Timestamp,
    ) -> bool {
        claims.iter().any(|(claim, op)| {
            op.id != entitled.id
                && match op.entered {
                    Some(at) => from < at && at < self.late(op, to) && claim.to <= at,
                    // It was cut short, perhaps while it entered. What another process has sent by then still arrives.
                    None => {
                        let end = op.held_until(self.operations.end);
                        let end = match op.id.process {
                            TESTER => end,
                            _ => self.late(op, end),
                        };
                        claim.from < to && end > from
                    }
                }
        })
    }

    /// A5.
    fn wake_ups(&mut self, key: &str, ops: &[&Operation]) {
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
                let wake = self.bounds.wake + self.kept_by_unpolled(ops, from, to);
                if to > from + wake && self.neglected(key, from, to, wake) {
                    let waited = to - from;
                    let what = format!("{key}: {} waited {waited} ns beside a free key", op.id);
                    self.found("A5", from, what);
                    return;
                }
            }
        }
    }

    /// How long waiters that were not polled may have been in the way, one after the other. What they were granted is
    /// released then.
    fn kept_by_unpolled(&self, ops: &[&Operation], from: Timestamp, to: Timestamp) -> Timestamp {
        let in_the_way = ops.iter().filter(|op| op.was_unpolled(from, to));
        in_the_way.map(|_| self.bounds.absent).sum()
    }

    /// A13. It is passed by those that are granted one of its keys while it waits for the other one.
    fn passed(&mut self) {
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

    /// From when on all permits may be out for ever.
    fn exhausted_from(&self, ops: &[&Operation]) -> Timestamp {
        let leaked_permits = ops
            .iter()
            .filter_map(|op| op.leaked_permit(self.bounds.settle));
        let mut since: Vec<Timestamp> = leaked_permits.map(|(since, _)| since).collect();
        since.sort_unstable();
        let last = since.get((self.bounds.capacity as usize).saturating_sub(1));
        last.copied().unwrap_or(Timestamp::MAX)
    }

    /// When nobody had a claim, or a latch was at 0.
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

    /// The last moment that is not late for what an operation's process has to do at this time.
    fn late(&self, op: &Operation, due: Timestamp) -> Timestamp {
        let stalls = self.operations.stalls.of(op.id.process);
        stalls.deadline(due, self.bounds.late)
    }

    /// A1, of latches.
    fn latch_opened(&mut self, key: &str, ops: &[&Operation]) {
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

    /// A6.
    fn wait(&mut self, op: &Operation) {
        let (Some(wait), Some(returned)) = (op.wait, op.returned) else {
            return;
        };
        // Nothing is answered to those that are not polled.
        let polled = op
            .unpolled
            .map_or(0, |(since, polled)| polled.unwrap_or(since));
        let due = (op.called + wait).max(polled);
        // Paused time gives what happens at one moment stamps that follow each other.
        if op.refused == Some(Refusal::Busy) && returned + 1_000 < op.called + wait {
            let early = op.called + wait - returned;
            self.found(
                "A6",
                returned,
                format!("{} timed out {early} ns early", op.id),
            );
        }
        let answered = op.granted || op.latch_opened || op.refused.is_some();
        let late = returned > self.late(op, due) && !self.was_stopped(op, due, returned);
        if wait > 0 && answered && late {
            let (over, how) = (
                returned - due,
                if op.granted { "granted" } else { "refused" },
            );
            self.found(
                "A6",
                returned,
                format!("{} was {how} {over} ns late", op.id),
            );
        }
    }

    /// A7 and A12.
    fn loss(&mut self, op: &Operation) {
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
        if until > self.late(op, op.deadline) && !self.was_stopped(op, op.deadline, until) {
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
            let affected = self.was_obstructed(op, since, known);
            if until > known && !affected && !self.was_stopped(op, wiped.from, known) {
                let over = until - wiped.to;
                let what = format!("{} was told {over} ns after its lock was wiped", op.id);
                self.found("A7", until, what);
            }
        }
        let lost_at = match (&op.ended, op.ending) {
            // A release that nobody answers until the lease is over.
            (Some((at, End::Lost)), Some(ending))
                if *at >= op.deadline && self.any_fault(ending, *at, None) =>
            {
                None
            }
            (Some((at, End::Lost)), _) => Some(*at),
            _ => op.loss_reported,
        };
        if let Some(lost_at) = lost_at.filter(|_| op.lease.is_none()) {
            let since = op.deadline.saturating_sub(lease);
            let kept_away = self.kept_away(op, since, lost_at);
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

    /// A11.
    fn end(&mut self, op: &Operation) {
        let answered = op.waited_until(self.operations.end);
        let ended = op.ended.as_ref().map_or(answered, |(at, _)| *at);
        let ending = op.ending.unwrap_or(ended);
        let odd = match (&op.refused, &op.ended) {
            (Some(Refusal::Other(text)), _) | (_, Some((_, End::Other(text)))) => text,
            (Some(Refusal::Lost), _) if !self.lost_number(op, answered) => {
                "an acquisition that entered nothing again was lost"
            }
            (Some(Refusal::Denied), _) if !self.any_fault(op.called, answered, Some("Deny")) => {
                "denied"
            }
            // A wait of some milliseconds may end before any answer comes.
            (Some(Refusal::Unavailable), _)
                if answered >= self.late(op, op.called)
                    && op.unpolled.is_none()
                    && !self.any_obstacle(op, op.called, answered) =>
            {
                "unavailable without a fault"
            }
            (_, Some((_, End::Unanswered))) if !self.any_obstacle(op, ending, ended) => {
                "a release that nobody answered, without a fault"
            }
            _ if op.killed.is_some() => return,
            _ if op.returned.is_none() => "never answered",
            _ if op.granted && op.ended.is_none() => "never ended",
            _ => return,
        };
        let what = format!("{}: {odd}", op.id);
        self.found("A11", answered, what);
    }

    /// Whether a waiter for permits or for a latch may have been told that its number is gone: it was wiped. Connections that are
    /// lost, and messages that are missed, are no reason.
    fn lost_number(&self, op: &Operation, answered: Timestamp) -> bool {
        let mut all = self.operations.all.iter();
        let is_number = self.bounds.capacity > 1
            || all.any(|other| other.key == op.key && other.change.is_some());
        let mut faults = self.operations.faults.iter();
        is_number
            && faults.any(|fault| {
                let meets = fault.from <= answered && fault.to + fault.heals >= op.called;
                meets && fault.wiped.has(&op.key)
            })
    }

    /// Whether there was a fault between the two times, of this kind or of any, or one that still had to heal.
    fn any_fault(&self, from: Timestamp, to: Timestamp, kind: Option<&str>) -> bool {
        let mut faults = self.operations.faults.iter();
        faults.any(|fault| {
            let meant = kind.is_none_or(|kind| kind == fault.kind);
            meant && fault.from <= to && fault.to + fault.heals >= from
        })
    }

    /// Whether there was a fault between the two times, or whether a command may have timed out because of stalls. A reply
    /// depends on the server too, whose stalls nobody records: a third of the timeout in known stalls is enough.
    fn any_obstacle(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
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
    fn times_out(&self, stall: Stall) -> bool {
        stall.to - stall.from >= self.bounds.lease / 6
    }

    /// The faults that kept an operation's process from the server between two times, with their aftermath.
    fn obstructions(
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

    fn was_obstructed(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
        self.obstructions(op, from, to).next().is_some()
    }

    /// How long faults and stalls kept an operation's process from the server between two times.
    fn kept_away(&self, op: &Operation, from: Timestamp, to: Timestamp) -> Timestamp {
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
    fn was_stopped(&self, op: &Operation, from: Timestamp, to: Timestamp) -> bool {
        let stopped = Affected::Process(op.id.process);
        let mut faults = self.operations.faults.iter();
        faults.any(|fault| {
            fault.affected == stopped && fault.from < to && fault.to + self.bounds.late > from
        })
    }
}

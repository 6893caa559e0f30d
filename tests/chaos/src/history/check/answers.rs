//! A6 and A11: waits end on time, and every operation has an answer of a declared kind.

use super::Checker;
use crate::history::{End, Operation, Refusal, Timestamp};

impl Checker<'_> {
    /// A6.
    pub(super) fn wait(&mut self, op: &Operation) {
        let (Some(wait), Some(returned)) = (op.wait, op.returned) else {
            return;
        };
        // A future that is not polled gets no answer.
        let polled = op
            .unpolled
            .map_or(0, |(since, polled)| polled.unwrap_or(since));
        let due = (op.called + wait).max(polled);
        // In paused time, events of one moment have timestamps a nanosecond apart.
        if op.refused == Some(Refusal::Busy) && returned + 1_000 < op.called + wait {
            let early = op.called + wait - returned;
            self.found(
                "A6",
                returned,
                format!("{} timed out {early} ns early", op.id),
            );
        }
        let answered = op.granted || op.latch_opened || op.seen_free || op.refused.is_some();
        let late = returned > self.obstacles.late(op, due)
            && !self.obstacles.was_stopped(op, due, returned);
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

    /// A11.
    pub(super) fn end(&mut self, op: &Operation) {
        let answered = op.waited_until(self.operations.end);
        let ended = op.ended.as_ref().map_or(answered, |(at, _)| *at);
        let ending = op.ending.unwrap_or(ended);
        let odd = match (&op.refused, &op.ended) {
            (Some(Refusal::Other(text)), _) | (_, Some((_, End::Other(text)))) => text,
            // Of a detached hold A17 says whether it may be lost.
            (Some(Refusal::Lost), _) if op.takes.is_none() && !self.lost_number(op, answered) => {
                "an acquisition that entered nothing again was lost"
            }
            (Some(Refusal::Denied), _)
                if !self.obstacles.any_fault(op.called, answered, Some("Deny")) =>
            {
                "denied"
            }
            // A wait of some milliseconds may end before any answer comes.
            (Some(Refusal::Unavailable), _)
                if answered >= self.obstacles.late(op, op.called)
                    && op.unpolled.is_none()
                    && !self.obstacles.any_obstacle(op, op.called, answered) =>
            {
                "unavailable without a fault"
            }
            // Nor is a release late that the end of a short lease has ended.
            (_, Some((_, End::Unanswered)))
                if ended >= self.obstacles.late(op, ending)
                    && !self.obstacles.any_obstacle(op, ending, ended) =>
            {
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

    /// Whether a waiter for permits or for a latch may have failed because its number was wiped. Lost connections and missed
    /// messages are no reason.
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
}

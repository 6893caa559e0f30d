//! What the waiters, the hold and the server are at, and the steps that change it.

use super::{ANSWER, CONFIRM_INTERVAL, NEVER};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guard {
    /// Code runs under it.
    Body,
    /// It was handed to the first waiter, who has not taken it yet.
    Offered,
    /// Its last guard was dropped, and its release has not begun.
    Dropped,
    /// Its release was sent.
    Ending,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) sent: u8,
    pub(super) answer: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) now: u8,
    pub(super) is_paused: bool,
    pub(super) had_a_pause: bool,
    /// Until when the server has a hold of the first client, and one of the other one.
    pub(super) ours: u8,
    pub(super) theirs: u8,
    /// Until when the other client has a claim.
    pub(super) other_claim: u8,
    pub(super) guard: Guard,
    pub(super) waiters: u8,
    /// Whether somebody may take the hold back.
    pub(super) may_come_back: bool,
    pub(super) is_release_under_way: bool,
    pub(super) deadline: u8,
    pub(super) confirmed: u8,
    pub(super) renew_at: u8,
    pub(super) not_before: u8,
    pub(super) doubted_since: u8,
    pub(super) passed_on_since: u8,
    pub(super) question: Option<Question>,
    pub(super) lost_answers: u8,
    pub(super) is_forced: bool,
    /// The first hand-over after the forced release.
    pub(super) first_after: Option<u8>,
    pub(super) has_late_body: bool,
    pub(super) was_short: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    TimePasses,
    Pauses,
    GoesOn,
    GuardEnds,
    WaiterTakesIt,
    WaiterLeaves,
    IsTakenBack,
    ReleaseBegins,
    ServerTakesTheRelease,
    WatchdogAsks,
    ServerTakesTheQuestion,
    AnswerArrives,
    AnswerIsLost,
    IsFreedByForce,
    OtherIsGranted,
}

impl State {
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.guard, Guard::Body | Guard::Offered | Guard::Dropped)
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_watched() && self.now < self.deadline
    }

    /// When the watchdog asks next.
    pub(super) fn next_renewal(&self) -> u8 {
        if self.question.is_some() || !self.is_watched() {
            return NEVER;
        }
        let wanted = match self.guard {
            Guard::Body => self.renew_at,
            _ => NEVER,
        };
        let passed_on = self.passed_on_since.max(self.confirmed + CONFIRM_INTERVAL);
        let confirm = self.doubted_since.min(passed_on);
        wanted.min(confirm).max(self.not_before)
    }

    /// Whether the watchdog has to do something before time passes.
    pub(super) fn is_due(&self) -> bool {
        let is_open = |question: Question| question.sent + ANSWER <= self.now;
        self.is_held() && self.next_renewal() <= self.now || self.question.is_some_and(is_open)
    }
}

//! One client that hands a hold from guard to guard, a server that may lose it, and another client.
//!
//! The first client renews its lease, confirms hand-overs, and may pause. It ends the hold, and may take it back until then.

mod state;

use stateright::{Model, Property};

use self::state::{Guard, Question};
use crate::check;
use crate::rules::Rule;

pub(crate) use self::state::{Action, State};

pub(crate) const NO_TWO_CLAIMS: &str = "claims do not overlap, unless the key was freed by force";
pub(crate) const FEW_BODIES: &str =
    "after a forced release, bodies begin only until the first hand-over is answered";

pub(crate) const ENOUGH_LEASE: &str = "who is handed a hold has half of its lease";
pub(crate) const SOMEBODY_HAS_IT: &str = "a hold that was handed over has a waiter";
const ALL_WAITED: &str = "each waiter is handed the hold, and it is released";
const IT_IS_LOST: &str = "a pause loses the hold, and the other client claims the key";
const NEVER: u8 = u8::MAX;

/// How long a question goes unanswered.
const ANSWER: u8 = 1;

/// The pause after a question that was not answered.
const PAUSE: u8 = 1;
const CONFIRM_INTERVAL: u8 = 1;

/// From the first hand-over after the loss: a question that was asked before it, its own question, and one that is lost.
const UNTIL_TOLD: u8 = CONFIRM_INTERVAL + ANSWER + PAUSE + ANSWER;
const WAITERS: u8 = 2;

pub(crate) struct HandOver {
    without: Option<Rule>,
    lease: u8,
    last: u8,
}

impl HandOver {
    /// Leases end within the time of the model.
    fn with_short_leases(without: Option<Rule>) -> Self {
        let (lease, last) = (6, 11);
        Self {
            without,
            lease,
            last,
        }
    }

    /// Nothing but the confirmations asks for the hold.
    fn with_long_leases(without: Option<Rule>) -> Self {
        let (lease, last) = (36, 9);
        Self {
            without,
            lease,
            last,
        }
    }
}

pub(crate) fn model(without: Option<Rule>) -> HandOver {
    match without {
        Some(Rule::hand_over_is_confirmed) => HandOver::with_long_leases(without),
        _ => HandOver::with_short_leases(without),
    }
}

impl HandOver {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn may_pass_on(&self, state: &State) -> bool {
        let has_half = state.deadline.saturating_sub(state.now) >= self.lease / 2;
        state.is_held() && (has_half || !self.has(Rule::hand_over_needs_half_of_the_lease))
    }

    /// The hold was handed over at this time.
    fn passed_on(&self, state: &mut State) {
        if self.has(Rule::hand_over_is_confirmed) {
            state.passed_on_since = state.passed_on_since.min(state.now);
        }
        if state.is_forced {
            state.first_after.get_or_insert(state.now);
        }
    }

    /// A guard begins with a hold that was handed over, or taken back.
    fn succeeds(&self, state: &mut State) {
        state.guard = Guard::Body;
        state.was_short |= state.deadline.saturating_sub(state.now) < self.lease / 2;
        let last = state.first_after.map_or(NEVER, |first| first + UNTIL_TOLD);
        state.has_late_body |= !state.had_a_pause && state.now > last;
    }

    fn release(state: &mut State) {
        state.guard = Guard::Ending;
        state.is_release_under_way = true;
    }

    fn answered(&self, state: &mut State, question: Question, is_there: bool) {
        state.question = None;
        if !state.is_held() {
            return;
        }
        if !is_there {
            state.guard = Guard::Over;
            return;
        }
        let from = match self.has(Rule::deadline_counts_from_before_the_sending) {
            true => question.sent,
            false => state.now,
        };
        state.deadline = state.deadline.max(from + self.lease);
        state.renew_at = question.sent + self.lease / 3;
        state.confirmed = state.confirmed.max(question.sent);
    }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            is_paused: false,
            had_a_pause: false,
            ours: self.lease,
            theirs: 0,
            other_claim: 0,
            guard: Guard::Body,
            waiters: WAITERS,
            may_come_back: true,
            is_release_under_way: false,
            deadline: self.lease,
            confirmed: 0,
            renew_at: self.lease / 3,
            not_before: 0,
            doubted_since: NEVER,
            passed_on_since: NEVER,
            question: None,
            lost_answers: 0,
            is_forced: false,
            first_after: None,
            has_late_body: false,
            was_short: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.last && (state.is_paused || !state.is_due()) {
            actions.push(Action::TimePasses);
        }
        if state.is_release_under_way {
            actions.push(Action::ServerTakesTheRelease);
        }
        if state
            .question
            .is_some_and(|question| question.answer.is_none())
        {
            actions.push(Action::ServerTakesTheQuestion);
        }
        if state.ours > state.now && !state.is_forced {
            actions.push(Action::IsFreedByForce);
        }
        if state.ours <= state.now && state.theirs <= state.now && state.other_claim == 0 {
            actions.push(Action::OtherIsGranted);
        }
        if state.is_paused {
            return actions.push(Action::GoesOn);
        }
        if !state.had_a_pause {
            actions.push(Action::Pauses);
        }
        match state.guard {
            Guard::Body => actions.push(Action::GuardEnds),
            Guard::Offered if state.waiters > 0 => {
                actions.extend([Action::WaiterTakesIt, Action::WaiterLeaves]);
            }
            Guard::Dropped => actions.push(Action::ReleaseBegins),
            _ => {}
        }
        let may_take_back = match state.guard {
            Guard::Dropped => true,
            Guard::Ending => !self.has(Rule::hold_is_taken_back_only_before_its_release),
            _ => false,
        };
        if may_take_back && state.may_come_back {
            actions.push(Action::IsTakenBack);
        }
        if state.is_held() && state.next_renewal() <= state.now {
            actions.push(Action::WatchdogAsks);
        }
        if let Some(question) = state.question {
            if question.answer.is_some() {
                actions.push(Action::AnswerArrives);
            }
            if state.lost_answers == 0 {
                actions.push(Action::AnswerIsLost);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::TimePasses => state.now += 1,
            Action::Pauses => (state.is_paused, state.had_a_pause) = (true, true),
            Action::GoesOn => state.is_paused = false,
            Action::GuardEnds if !state.is_held() => state.guard = Guard::Over,
            Action::GuardEnds if !self.may_pass_on(&state) => Self::release(&mut state),
            Action::GuardEnds if state.waiters > 0 => {
                state.guard = Guard::Offered;
                self.passed_on(&mut state);
            }
            Action::GuardEnds => state.guard = Guard::Dropped,
            Action::WaiterTakesIt => {
                state.waiters -= 1;
                match self.may_pass_on(&state) {
                    true => self.succeeds(&mut state),
                    false => Self::release(&mut state),
                }
            }
            Action::WaiterLeaves => {
                state.waiters -= 1;
                let stays = state.waiters > 0 && self.may_pass_on(&state);
                if !stays && self.has(Rule::waiter_that_leaves_passes_the_hold_on) {
                    Self::release(&mut state);
                }
            }
            Action::IsTakenBack => {
                if last.guard == Guard::Dropped && !self.may_pass_on(&state) {
                    return None;
                }
                state.may_come_back = false;
                self.passed_on(&mut state);
                self.succeeds(&mut state);
            }
            Action::ReleaseBegins => Self::release(&mut state),
            Action::ServerTakesTheRelease => {
                state.is_release_under_way = false;
                state.ours = 0;
                if state.guard == Guard::Ending {
                    state.guard = Guard::Over;
                }
            }
            Action::WatchdogAsks => {
                (state.doubted_since, state.passed_on_since) = (NEVER, NEVER);
                state.question = Some(Question {
                    sent: now,
                    answer: None,
                });
            }
            Action::ServerTakesTheQuestion => {
                let is_there = state.ours > now;
                if is_there {
                    state.ours = state.ours.max(now + self.lease);
                }
                state.question.as_mut()?.answer = Some(is_there);
            }
            Action::AnswerArrives => {
                let question = state.question?;
                self.answered(&mut state, question, question.answer?);
            }
            Action::AnswerIsLost => {
                state.question = None;
                state.lost_answers += 1;
                state.not_before = now + PAUSE;
                state.doubted_since = state.doubted_since.min(now);
            }
            Action::IsFreedByForce => {
                state.ours = 0;
                state.is_forced = true;
            }
            Action::OtherIsGranted => {
                state.theirs = now + self.lease;
                state.other_claim = now + self.lease;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_TWO_CLAIMS, |_, state: &State| {
                let is_ours = state.guard == Guard::Body && state.now < state.deadline;
                state.is_forced || !(is_ours && state.now < state.other_claim)
            }),
            Property::always(FEW_BODIES, |_, state: &State| !state.has_late_body),
            Property::always(ENOUGH_LEASE, |_, state: &State| !state.was_short),
            Property::always(SOMEBODY_HAS_IT, |_, state: &State| {
                state.guard != Guard::Offered || state.waiters > 0
            }),
            Property::sometimes(IT_IS_LOST, |model: &Self, state: &State| {
                let has_ended = state.guard == Guard::Body && state.now >= state.deadline;
                let is_claimed = has_ended && state.now < state.other_claim && !state.is_forced;
                // No lease ends in the other form of the model.
                is_claimed || model.lease > model.last
            }),
            Property::sometimes(ALL_WAITED, |_, state: &State| {
                let is_over = state.guard == Guard::Over && state.ours == 0;
                is_over && state.waiters == 0 && !state.is_forced && !state.may_come_back
            }),
        ]
    }
}

#[test]
fn hold_that_is_handed_over_has_one_owner() {
    check::holds("hand-over, short leases", HandOver::with_short_leases(None));
    check::holds("hand-over, long leases", HandOver::with_long_leases(None));
}

//! Fail-overs that lose the last write and restarts without data, as one client sees them: it says its releases again, and asks
//! for its holds.
//!
//! There is no time here. A lease that ends would only hide what is left behind, so no lease ends.

mod state;

use stateright::{Model, Property};

use self::state::{Hold, Remembered, Request};
use crate::check;
use crate::rules::Rule;

pub(crate) use self::state::{Action, State};

pub(crate) const NOTHING_IS_LEFT: &str = "at rest, the server has no owner whose hold has ended";
pub(crate) const LOSSES_ARE_TOLD: &str = "at rest, the server has the hold that the client claims";
const NO_TWO_CLAIMS: &str = "without a fault of the server, claims do not overlap";
const RELEASED_COMES_BACK: &str = "a fail-over brings a released hold back";
const CLAIMS_OVERLAP: &str =
    "after a fail-over two clients claim the key, until one of them is told";

/// The owner of the other client.
const OTHER: u8 = 9;
const MOST_OWNERS: u8 = 2;
const MOST_FAULTS: u8 = 2;
const MOST_TIMEOUTS: u8 = 1;

pub(crate) struct Failover {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Failover {
    Failover { without }
}

impl Failover {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Remembers an owner that was released, or found to be gone, over this connection.
    fn remember(&self, state: &mut State, owner: u8, over: u8) {
        let is_replaced = over != state.epoch;
        if is_replaced && self.has(Rule::release_of_an_earlier_connection_is_said_again) {
            return state.release_later(owner);
        }
        state.remembered.push(Remembered { owner, over });
        state.remembered.sort_unstable();
        state.remembered.dedup();
    }

    /// Asks for the hold at once if the present connection is another one than before.
    fn doubt_of_other_connection(hold: &mut Hold, epoch: u8) {
        if hold.asked_over != epoch {
            hold.asked_over = epoch;
            hold.is_doubted = true;
        }
    }

    /// Forgets what was remembered, once a release over this connection is answered. Returns whether there was anything.
    fn forgets_others(&self, state: &mut State, over: u8) -> bool {
        // By then the copy has heard of them, and what came over a connection that has ended was noticed long ago. A release of an
        // earlier connection is only sent again.
        if state.copy != state.server || over != state.epoch || !state.is_up {
            return false;
        }
        let number = state.remembered.len();
        let keeps = self.has(Rule::answer_of_one_connection_forgets_no_releases_of_others);
        state.remembered.retain(|one| keeps && one.over != over);
        state.remembered.len() < number
    }

    fn reconnected(&self, state: &mut State) {
        state.seen = state.epoch;
        if let Some(hold) = &mut state.hold
            && self.has(Rule::holds_are_asked_for_again)
        {
            Self::doubt_of_other_connection(hold, state.epoch);
        }
        if self.has(Rule::releases_are_said_again) {
            let (same, others): (Vec<_>, Vec<_>) = state
                .remembered
                .iter()
                .partition(|one| one.over == state.epoch);
            state.remembered = same;
            for one in others {
                state.release_later(one.owner);
            }
        }
    }

    fn granted(&self, state: &mut State, over: u8) {
        let mut hold = Hold {
            owner: state.owners,
            asked_over: over,
            is_doubted: false,
            question: None,
        };
        if self.has(Rule::connection_is_compared_once_the_hold_is_watched) {
            Self::doubt_of_other_connection(&mut hold, state.epoch);
        }
        state.hold = Some(hold);
    }

    fn took_answer(&self, state: &mut State, is_there: bool) {
        let Some(hold) = &mut state.hold else {
            return;
        };
        let over = hold.question.take().map_or(0, |question| question.over);
        if is_there {
            if !self.has(Rule::doubt_outlasts_an_earlier_question) {
                hold.is_doubted = false;
            }
            return;
        }
        let owner = hold.owner;
        state.hold = None;
        if self.has(Rule::holds_that_are_gone_are_remembered) {
            self.remember(state, owner, over);
        }
    }
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: None,
            copy: None,
            faults: 0,
            timeouts: 0,
            is_up: true,
            epoch: 1,
            seen: 1,
            owners: 0,
            attempt: None,
            hold: None,
            releases: [None; MOST_OWNERS as usize],
            is_pending: [false; MOST_OWNERS as usize],
            remembered: Vec::new(),
            other_claims: false,
            other_came: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.copy != state.server {
            actions.push(Action::CopyCatchesUp);
        }
        if state.faults < MOST_FAULTS {
            actions.extend([
                Action::CopyTakesOver,
                Action::ServerRestartsEmpty,
                Action::ConnectionBreaks,
            ]);
        }
        if !state.is_up {
            actions.push(Action::Reconnects);
        }
        if state.is_up && state.seen != state.epoch {
            actions.push(Action::WatchdogSeesTheConnection);
        }
        let is_idle = state.attempt.is_none() && state.hold.is_none();
        if is_idle && state.is_up && state.owners < MOST_OWNERS {
            actions.push(Action::SendsAnAttempt);
        }
        if let Some(attempt) = &state.attempt {
            if state.reaches(attempt) {
                actions.push(Action::ServerTakesTheAttempt);
            }
            if attempt.answer.is_some() {
                actions.push(Action::TakesTheAnswer);
            }
            if state.may_be_lost(attempt) {
                actions.push(Action::LosesTheAttempt);
            }
        }
        if let Some(hold) = &state.hold {
            actions.push(Action::EndsTheHold);
            if hold.is_doubted && hold.question.is_none() && state.is_up {
                actions.push(Action::AsksForTheHold);
            }
            if let Some(question) = &hold.question {
                if state.reaches(question) {
                    actions.push(Action::ServerTakesTheQuestion);
                }
                if question.answer.is_some() {
                    actions.push(Action::TakesTheAnswerToTheQuestion);
                }
                if state.may_be_lost(question) {
                    actions.push(Action::LosesTheQuestion);
                }
            }
        }
        for owner in 1..=MOST_OWNERS {
            let at = usize::from(owner - 1);
            match &state.releases[at] {
                None if state.is_pending[at] && state.is_up => {
                    actions.push(Action::SendsTheRelease(owner));
                }
                None => {}
                Some(release) => {
                    if state.reaches(release) {
                        actions.push(Action::ServerTakesTheRelease(owner));
                    }
                    if release.answer.is_some() {
                        actions.extend([true, false].map(|is_long_after| {
                            Action::TakesTheAnswerToTheRelease {
                                owner,
                                is_long_after,
                            }
                        }));
                    }
                    if state.may_be_lost(release) {
                        actions.push(Action::LosesTheRelease(owner));
                    }
                }
            }
        }
        if state.server.is_none() && !state.other_claims && state.other_came < 2 {
            actions.push(Action::OtherIsGranted);
        }
        if state.other_claims {
            actions.push(Action::OtherReleases);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let send = Request {
            over: state.epoch,
            answer: None,
        };
        match action {
            Action::CopyCatchesUp => state.copy = state.server,
            Action::CopyTakesOver => {
                state.server = state.copy;
                state.faults += 1;
                state.down();
            }
            Action::ServerRestartsEmpty => {
                // The copy may take over before it has heard of that.
                state.server = None;
                state.faults += 1;
                state.down();
            }
            Action::ConnectionBreaks => {
                state.faults += 1;
                state.down();
            }
            Action::Reconnects => {
                state.is_up = true;
                state.epoch += 1;
            }
            Action::WatchdogSeesTheConnection => self.reconnected(&mut state),
            Action::SendsAnAttempt => {
                state.owners += 1;
                state.attempt = Some(send);
            }
            Action::ServerTakesTheAttempt => {
                let owner = state.owners;
                let is_granted = state.server.is_none();
                if is_granted {
                    state.write(Some(owner));
                }
                state.attempt.as_mut()?.answer = Some(is_granted);
            }
            Action::TakesTheAnswer => {
                let attempt = state.attempt.take()?;
                if attempt.answer == Some(true) {
                    self.granted(&mut state, attempt.over);
                }
            }
            Action::LosesTheAttempt => {
                let attempt = state.attempt.take()?;
                state.lose(&attempt);
                state.release_later(state.owners);
            }
            Action::AsksForTheHold => {
                let hold = state.hold.as_mut()?;
                hold.is_doubted = false;
                hold.question = Some(send);
            }
            Action::ServerTakesTheQuestion => {
                let hold = state.hold.as_mut()?;
                let is_there = state.server == Some(hold.owner);
                hold.question.as_mut()?.answer = Some(is_there);
            }
            Action::TakesTheAnswerToTheQuestion => {
                let is_there = state.hold?.question?.answer?;
                self.took_answer(&mut state, is_there);
            }
            Action::LosesTheQuestion => {
                let question = state.hold?.question?;
                state.lose(&question);
                let hold = state.hold.as_mut()?;
                hold.question = None;
                hold.is_doubted |= self.has(Rule::question_without_an_answer_stays_open);
            }
            Action::EndsTheHold => {
                let owner = state.hold.take()?.owner;
                state.release_later(owner);
            }
            Action::SendsTheRelease(owner) => state.releases[usize::from(owner - 1)] = Some(send),
            Action::ServerTakesTheRelease(owner) => {
                if state.server == Some(owner) {
                    state.write(None);
                }
                state.releases[usize::from(owner - 1)].as_mut()?.answer = Some(true);
            }
            Action::TakesTheAnswerToTheRelease {
                owner,
                is_long_after,
            } => {
                let at = usize::from(owner - 1);
                let release = state.releases[at].take()?;
                state.is_pending[at] = false;
                if is_long_after && !self.forgets_others(&mut state, release.over) {
                    return None;
                }
                self.remember(&mut state, owner, release.over);
            }
            Action::LosesTheRelease(owner) => {
                let release = state.releases[usize::from(owner - 1)].take()?;
                state.lose(&release);
            }
            Action::OtherIsGranted => {
                state.write(Some(OTHER));
                state.other_claims = true;
                state.other_came += 1;
            }
            Action::OtherReleases => {
                state.other_claims = false;
                if state.server == Some(OTHER) {
                    state.write(None);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_IS_LEFT, |_, state: &State| {
                let held = state.hold.map(|hold| hold.owner);
                let is_known = |owner| owner == OTHER || held == Some(owner);
                !state.is_at_rest() || state.server.is_none_or(is_known)
            }),
            Property::always(LOSSES_ARE_TOLD, |_, state: &State| {
                let has_it = |hold: Hold| state.server == Some(hold.owner);
                !state.is_at_rest() || state.hold.is_none_or(has_it)
            }),
            Property::always(NO_TWO_CLAIMS, |_, state: &State| {
                state.faults > 0 || !(state.hold.is_some() && state.other_claims)
            }),
            Property::sometimes(RELEASED_COMES_BACK, |_, state: &State| {
                let is_remembered = |one: &Remembered| state.server == Some(one.owner);
                !state.is_up && state.remembered.iter().any(is_remembered)
            }),
            Property::sometimes(CLAIMS_OVERLAP, |_, state: &State| {
                state.hold.is_some() && state.other_claims
            }),
        ]
    }
}

#[test]
fn client_frees_what_it_released_and_is_told_what_it_lost() {
    check::holds("fail-over", model(None));
}

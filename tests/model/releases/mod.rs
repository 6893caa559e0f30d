//! Attempts and releases over connections that break: requests without an answer are sent again, and those of a broken connection
//! may be carried out late.
//!
//! There is no time here. A lease that ends would only hide what is left behind, so no lease ends. The time in which a release is
//! repeated lasts until no attempt of its owner is left in a broken connection.

mod state;

use stateright::{Model, Property};

use self::state::{Acquisition, Message, Request};
use crate::check;
use crate::rules::Rule;

pub(crate) use self::state::{Action, State};

pub(crate) const NO_TWO_CLAIMS: &str = "claims do not overlap";
pub(crate) const NOTHING_IS_LEFT: &str =
    "when all is done, nothing of an ended owner is in the server";

pub(crate) const NOT_ITS_OWN_REFUSAL: &str = "an attempt is not refused because of its own owner";
pub(crate) const NO_FALSE_LOSS: &str = "no release tells a loss, as the server loses nothing";
pub(crate) const NOTHING_AFTER_THE_WAIT: &str = "nothing is granted after the end of the wait";
const LATE_ATTEMPT: &str = "an attempt is carried out behind the answer to its owner's release";
const OTHER: u8 = 9;
const MOST_OWNERS: u8 = 2;

/// How often the connection breaks, and how many messages are lost on one that stands.
const MOST_BREAKS: u8 = 1;
const MOST_LOST: u8 = 1;
const MOST_ATTEMPTS: u8 = 3;

pub(crate) struct Releases {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Releases {
    Releases { without }
}

impl Releases {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn send_attempt(&self, state: &mut State) {
        let over = state.connection;
        let (owner, before) = match state.acquisition {
            Acquisition::Waits {
                owner, in_doubt, ..
            } => (owner, in_doubt),
            _ => {
                state.acquisitions += 1;
                if state.owners == 0 || self.has(Rule::owner_is_not_used_again) {
                    state.owners += 1;
                }
                state.is_wait_over = false;
                (state.owners, None)
            }
        };
        let in_doubt = match self.has(Rule::attempt_is_in_doubt_before_it_is_sent) {
            true => before.or(Some(over)),
            false => before,
        };
        state.attempts += 1;
        state.wire.push(Message {
            over,
            request: Request::Attempt(owner),
        });
        state.acquisition = Acquisition::Waits {
            owner,
            awaits: Some(over),
            before,
            in_doubt,
        };
    }

    /// The server carries out a request. Returns whether it was granted, or has freed the key.
    fn carry_out(&self, state: &mut State, request: Request) -> bool {
        match request {
            Request::Attempt(owner) => {
                let is_own = state.server == Some(owner);
                let is_granted =
                    state.server.is_none() || is_own && self.has(Rule::own_owner_is_granted_again);
                if is_granted {
                    state.server = Some(owner);
                }
                state.was_its_own_refusal |= is_own && !is_granted;
                is_granted
            }
            Request::Release(owner) => {
                let is_freed = state.server == Some(owner)
                    || state.server.is_some() && !self.has(Rule::release_names_its_owner);
                if is_freed {
                    state.server = None;
                }
                is_freed
            }
        }
    }

    fn attempt_answered(&self, state: &mut State, is_granted: bool) {
        let Acquisition::Waits {
            owner,
            before,
            in_doubt,
            ..
        } = state.acquisition
        else {
            return;
        };
        if !is_granted {
            state.acquisition = Acquisition::Waits {
                owner,
                awaits: None,
                before,
                in_doubt: before,
            };
        } else if state.is_wait_over && self.has(Rule::late_grant_is_released) {
            state.acquisition = Acquisition::None;
            state.pending_of(owner, false, in_doubt);
        } else {
            state.was_granted_late |= state.is_wait_over;
            state.acquisition = Acquisition::Holds {
                owner,
                in_doubt: before,
            };
        }
    }

    fn release_answered(&self, state: &mut State, owner: u8, is_freed: bool) {
        let connection = state.connection;
        let Some(at) = state.pending.iter().position(|one| one.owner == owner) else {
            return;
        };
        let one = &mut state.pending[at];
        let may_be_done =
            one.may_be_done && self.has(Rule::missing_hold_after_an_earlier_try_is_no_loss);
        let is_loss = one.is_of_hold && !is_freed && !one.is_answered && !may_be_done;
        (one.is_answered, one.awaits) = (true, None);
        let may_come_late = one.in_doubt.is_some_and(|over| over != connection)
            && self.has(Rule::release_is_repeated_while_an_attempt_may_come);
        let is_over = one.is_time_over || !may_come_late;
        state.was_false_loss |= is_loss;
        if is_over {
            state.pending.remove(at);
        }
    }
}

impl Model for Releases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: None,
            connection: 0,
            lost: 0,
            wire: Vec::new(),
            acquisition: Acquisition::None,
            pending: Vec::new(),
            owners: 0,
            acquisitions: 0,
            attempts: 0,
            is_wait_over: false,
            other_claims: false,
            other_came: 0,
            was_its_own_refusal: false,
            was_false_loss: false,
            was_granted_late: false,
            was_carried_out_late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.connection < MOST_BREAKS {
            actions.push(Action::ConnectionIsReplaced);
        }
        match &state.acquisition {
            Acquisition::None if state.acquisitions < MOST_OWNERS => {
                actions.push(Action::SendsAnAttempt);
            }
            Acquisition::None => {}
            Acquisition::Waits { awaits, .. } => {
                match awaits {
                    None if state.attempts < MOST_ATTEMPTS => actions.push(Action::SendsAnAttempt),
                    Some(over) if state.may_lose(*over) => actions.push(Action::HearsNoAnswer),
                    _ => {}
                }
                actions.push(Action::GivesUp);
                if !state.is_wait_over {
                    actions.push(Action::WaitEnds);
                }
            }
            Acquisition::Holds { .. } => actions.push(Action::EndsTheHold),
        }
        for (at, message) in state.wire.iter().enumerate() {
            if !state.is_first(at) {
                continue;
            }
            let is_awaited = state.is_awaited(*message);
            let answers: &[bool] = if is_awaited { &[true, false] } else { &[false] };
            actions.extend(answers.iter().map(|is_answered| Action::ServerTakes {
                at,
                is_answered: *is_answered,
            }));
            if message.over != state.connection {
                actions.push(Action::IsLostOnTheWay(at));
            }
        }
        for (at, one) in state.pending.iter().enumerate() {
            match one.awaits {
                None => actions.push(Action::SendsTheRelease(at)),
                Some(over) if state.may_lose(over) => {
                    actions.push(Action::HearsNoAnswerToTheRelease(at));
                }
                Some(_) => {}
            }
            let attempt = Request::Attempt(one.owner);
            let is_any_left = state.wire.iter().any(|message| message.request == attempt);
            if !one.is_time_over && one.in_doubt.is_some() && one.awaits.is_none() && !is_any_left {
                actions.push(Action::NothingCanComeLate(at));
            }
        }
        if state.server.is_none() && state.other_came < 1 {
            actions.push(Action::OtherIsGranted);
        }
        if state.other_claims {
            actions.push(Action::OtherReleases);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::ConnectionIsReplaced => state.connection += 1,
            Action::SendsAnAttempt => self.send_attempt(&mut state),
            Action::ServerTakes { at, is_answered } => {
                let message = state.wire.remove(at);
                let had_ended = !state.pending.iter().any(|one| !one.is_answered);
                let is_late = matches!(message.request, Request::Attempt(_)) && had_ended;
                let is_done = self.carry_out(&mut state, message.request);
                state.was_carried_out_late |= is_late && is_done && !state.pending.is_empty();
                match message.request {
                    _ if !is_answered => {}
                    Request::Attempt(_) => self.attempt_answered(&mut state, is_done),
                    Request::Release(owner) => self.release_answered(&mut state, owner, is_done),
                }
            }
            Action::IsLostOnTheWay(at) => drop(state.wire.remove(at)),
            Action::HearsNoAnswer => {
                if let Acquisition::Waits {
                    awaits, in_doubt, ..
                } = &mut state.acquisition
                {
                    let over = awaits.take()?;
                    // Now at the latest it is known to be in doubt.
                    *in_doubt = in_doubt.or(Some(over));
                    state.lose(over);
                }
            }
            Action::GivesUp => {
                let acquisition = std::mem::replace(&mut state.acquisition, Acquisition::None);
                if let Acquisition::Waits {
                    owner, in_doubt, ..
                } = acquisition
                    && in_doubt.is_some()
                {
                    state.pending_of(owner, false, in_doubt);
                }
            }
            Action::WaitEnds => state.is_wait_over = true,
            Action::EndsTheHold => {
                let acquisition = std::mem::replace(&mut state.acquisition, Acquisition::None);
                if let Acquisition::Holds { owner, in_doubt } = acquisition {
                    state.pending_of(owner, true, in_doubt);
                }
            }
            Action::SendsTheRelease(at) => {
                let over = state.connection;
                let one = &mut state.pending[at];
                one.awaits = Some(over);
                let request = Request::Release(one.owner);
                // One copy on each connection is enough.
                let message = Message { over, request };
                if !state.wire.contains(&message) {
                    state.wire.push(message);
                }
            }
            Action::HearsNoAnswerToTheRelease(at) => {
                let one = &mut state.pending[at];
                let over = one.awaits.take()?;
                one.may_be_done = true;
                state.lose(over);
                if !self.has(Rule::release_is_sent_until_it_is_answered) {
                    state.pending.remove(at);
                }
            }
            Action::NothingCanComeLate(at) => state.pending[at].is_time_over = true,
            Action::OtherIsGranted => {
                state.server = Some(OTHER);
                state.other_claims = true;
                state.other_came += 1;
            }
            Action::OtherReleases => {
                state.other_claims = false;
                if state.server == Some(OTHER) {
                    state.server = None;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_TWO_CLAIMS, |_, state: &State| {
                let holds = matches!(state.acquisition, Acquisition::Holds { .. });
                !(holds && state.other_claims)
            }),
            Property::always(NOTHING_IS_LEFT, |_, state: &State| {
                let is_idle = state.acquisition == Acquisition::None;
                let is_done = is_idle && state.wire.is_empty() && state.pending.is_empty();
                !is_done || state.server.is_none_or(|owner| owner == OTHER)
            }),
            Property::always(NOT_ITS_OWN_REFUSAL, |_, state: &State| {
                !state.was_its_own_refusal
            }),
            Property::always(NO_FALSE_LOSS, |_, state: &State| !state.was_false_loss),
            Property::always(NOTHING_AFTER_THE_WAIT, |_, state: &State| {
                !state.was_granted_late
            }),
            Property::sometimes(LATE_ATTEMPT, |_, state: &State| state.was_carried_out_late),
        ]
    }
}

#[test]
fn owner_that_has_ended_is_in_the_server_no_more() {
    check::holds("releases", model(None));
}

//! Fencing tokens, a fail-over that loses the last grant, and a store that compares tokens.
//!
//! The clock of the server counts microseconds, and each grant takes one. A holder may hang for as long as it likes, and write
//! after that.

use stateright::{Model, Property};

use crate::check;
use crate::rules::Rule;

pub(crate) const TOKENS_GROW: &str =
    "unless the clock is set back, each token is above all earlier ones";
pub(crate) const OWN_TOKENS_GROW: &str = "each token is above all that its client has seen";
const NO_CLAIM_IS_REFUSED: &str =
    "without a fail-over, the store refuses only holders whose claim has ended";
const LATE_WRITE_IS_REFUSED: &str = "the write of a holder that hung is refused";

const MOST_GRANTS: u8 = 4;
const CLIENTS: usize = 2;

pub(crate) struct Tokens {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Tokens {
    Tokens { without }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    clock: u8,
    holder: Option<usize>,
    last_token: u8,
    /// What the copy has that misses the last grant.
    token_of_copy: u8,
    grants: u8,
    /// The highest token that was ever granted, and by client the highest that it has seen, which is that of its last hold.
    highest: u8,
    seen: [u8; CLIENTS],
    /// The highest token that the store has taken.
    stored: u8,
    has_failed_over: bool,
    is_set_back: bool,
    is_repeated: bool,
    is_below_own: bool,
    was_refused: bool,
    holder_was_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    TimePasses,
    IsGranted(usize),
    LeaseEnds,
    CopyTakesOver,
    ClockIsSetBack,
    Writes(usize),
}

impl Tokens {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn next_token(&self, state: &State, client: usize) -> u8 {
        let mut base = state.last_token;
        if self.has(Rule::token_is_at_least_the_time) {
            base = base.max(state.clock - 1);
        }
        if self.has(Rule::token_is_above_what_the_client_has_seen) {
            base = base.max(state.seen[client]);
        }
        base + 1
    }
}

impl Model for Tokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            clock: 1,
            holder: None,
            last_token: 0,
            token_of_copy: 0,
            grants: 0,
            highest: 0,
            seen: [0; CLIENTS],
            stored: 0,
            has_failed_over: false,
            is_set_back: false,
            is_repeated: false,
            is_below_own: false,
            was_refused: false,
            holder_was_refused: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.clock < 2 * MOST_GRANTS {
            actions.push(Action::TimePasses);
        }
        match state.holder {
            Some(_) => actions.push(Action::LeaseEnds),
            None if state.grants < MOST_GRANTS => {
                actions.extend((0..CLIENTS).map(Action::IsGranted));
            }
            None => {}
        }
        if !state.has_failed_over {
            actions.push(Action::CopyTakesOver);
        }
        if !state.is_set_back && state.clock > 2 {
            actions.push(Action::ClockIsSetBack);
        }
        for client in 0..CLIENTS {
            if state.seen[client] > 0 {
                actions.push(Action::Writes(client));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::TimePasses => state.clock += 1,
            Action::IsGranted(client) => {
                let token = self.next_token(&state, client);
                state.is_repeated |= token <= state.highest;
                state.is_below_own |= token <= state.seen[client];
                state.token_of_copy = state.last_token;
                state.last_token = token;
                state.highest = state.highest.max(token);
                state.seen[client] = token;
                state.holder = Some(client);
                state.grants += 1;
                // A grant takes longer than the clock's step.
                state.clock += 1;
            }
            Action::LeaseEnds => state.holder = None,
            Action::CopyTakesOver => {
                state.has_failed_over = true;
                state.last_token = state.token_of_copy;
                state.holder = None;
            }
            Action::ClockIsSetBack => {
                state.is_set_back = true;
                state.clock = 1;
            }
            Action::Writes(client) => {
                let token = state.seen[client];
                let is_refused = token < state.stored;
                state.was_refused |= is_refused;
                state.holder_was_refused |= is_refused && state.holder == Some(client);
                state.stored = state.stored.max(token);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_GROW, |_, state: &State| {
                state.is_set_back || !state.is_repeated
            }),
            Property::always(OWN_TOKENS_GROW, |_, state: &State| !state.is_below_own),
            Property::always(NO_CLAIM_IS_REFUSED, |_, state: &State| {
                state.has_failed_over || !state.holder_was_refused
            }),
            Property::sometimes(LATE_WRITE_IS_REFUSED, |_, state: &State| state.was_refused),
        ]
    }
}

#[test]
fn tokens_grow_whatever_the_server_has_lost() {
    check::holds("tokens", model(None));
}

//! A Redlock on three servers that comes back to the servers that it missed or lost, and a second client.
//!
//! There is no time here. Each part is renewed while the server has it, and the holder learns of a lost part at any later moment.

use stateright::{Model, Property};

use crate::check;
use crate::rules::Rule;

const NO_TWO_CLAIMS: &str = "claims do not overlap while one server at a time forgets";
pub(crate) const NOBODY_HAD_IT_BETWEEN: &str =
    "at rest, nobody holds a key that another client had meanwhile";
pub(crate) const IT_COMES_BACK: &str = "at rest, no free server is missing";
pub(crate) const NOTHING_IS_LEFT: &str = "at rest, no part of an ended hold is left";
const OTHERS_GET_IT: &str = "after a forced release another client has it, and frees it";
const TWO_ARE_FORGOTTEN: &str = "two servers forget in turn, and the hold is on all of them again";

const SERVERS: usize = 3;
const QUORUM: usize = 2;
/// How many parts are granted anew.
const MOST_FRESH: u8 = 3;

pub(crate) struct Regain {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Regain {
    Regain { without }
}

/// What a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Data {
    Free,
    /// A part of the hold, with the number of its owner.
    Part(u8),
    Other,
}

/// The task that brings the hold back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    Rests,
    /// This server has granted a part anew. `found`: where an earlier part was found, or not.
    Fresh {
        server: usize,
        part: u8,
        found: [Option<bool>; SERVERS],
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    servers: [Data; SERVERS],
    /// The parts that the holder believes in.
    parts: [Option<u8>; SERVERS],
    last_part: u8,
    task: Task,
    has_ended: bool,
    /// Whether the other client wants the key: before, while it has some servers, and after that.
    other_wants: Option<bool>,
    other_claims: bool,
    other_had_it: bool,
    forgotten: u8,
    /// The next server of a forced release, once that has begun.
    forced: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    HolderLearnsOfALostPart(usize),
    AsksAMissingServer(usize),
    LooksForAnEarlierPart(usize),
    AddsTheFreshPart,
    GivesTheFreshPartBack,
    HolderEnds,
    OtherIsGranted(usize),
    OtherHasAMajority,
    OtherEndsOrGivesUp,
    ServerForgets(usize),
    IsFreedByForceOnTheNextServer,
}

impl State {
    fn count(&self) -> usize {
        self.parts.iter().flatten().count()
    }

    fn is_held(&self) -> bool {
        !self.has_ended && self.count() >= QUORUM
    }

    fn has_part(&self, server: usize) -> bool {
        self.parts[server].is_some_and(|part| self.servers[server] == Data::Part(part))
    }

    /// Removes a part from its server.
    fn release(&mut self, server: usize, part: u8) {
        if self.servers[server] == Data::Part(part) {
            self.servers[server] = Data::Free;
        }
    }

    /// Whether there is nothing to learn, and the task rests.
    fn is_at_rest(&self) -> bool {
        let learnt = |server: usize| self.parts[server].is_none() || self.has_part(server);
        self.task == Task::Rests && (0..SERVERS).all(learnt)
    }
}

impl Regain {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn may_ask(&self, state: &State, server: usize) -> bool {
        self.has(Rule::missing_servers_are_asked_again)
            && state.is_held()
            && state.task == Task::Rests
            && state.parts[server].is_none()
            && state.servers[server] == Data::Free
            && state.last_part < SERVERS as u8 + MOST_FRESH
    }

    /// Whether enough earlier parts were found.
    fn is_confirmed(&self, found: &[Option<bool>; SERVERS]) -> bool {
        let number = found.iter().filter(|found| **found == Some(true)).count();
        number >= QUORUM || !self.has(Rule::fresh_part_counts_once_the_earlier_ones_are_found)
    }

    /// What was found before the grant, if it is looked for then.
    fn found_before(&self, state: &State) -> [Option<bool>; SERVERS] {
        match self.has(Rule::earlier_parts_are_looked_for_after_the_fresh_grant) {
            true => [None; SERVERS],
            // All were there when they were granted.
            false => state.parts.map(|part| part.map(|_| true)),
        }
    }
}

impl Model for Regain {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = |servers, parts| State {
            servers,
            parts,
            last_part: SERVERS as u8,
            task: Task::Rests,
            has_ended: false,
            other_wants: Some(false),
            other_claims: false,
            other_had_it: false,
            forgotten: 0,
            forced: None,
        };
        let [one, two, three] = [Data::Part(1), Data::Part(2), Data::Part(3)];
        vec![
            state([one, two, three], [Some(1), Some(2), Some(3)]),
            // The third server did not answer in time.
            state([one, two, Data::Free], [Some(1), Some(2), None]),
        ]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for server in 0..SERVERS {
            if state.parts[server].is_some() && !state.has_part(server) {
                actions.push(Action::HolderLearnsOfALostPart(server));
            }
            if self.may_ask(state, server) {
                actions.push(Action::AsksAMissingServer(server));
            }
            if state.other_wants.is_some() && state.servers[server] == Data::Free {
                actions.push(Action::OtherIsGranted(server));
            }
            let mut others = (0..SERVERS).filter(|other| *other != server);
            if state.forgotten < 2
                && state.forced.is_none()
                && others.all(|other| state.has_part(other))
            {
                actions.push(Action::ServerForgets(server));
            }
        }
        if let Task::Fresh { found, .. } = &state.task {
            let is_open = |one: &usize| state.parts[*one].is_some() && found[*one].is_none();
            let open: Vec<usize> = (0..SERVERS).filter(is_open).collect();
            actions.extend(open.iter().map(|one| Action::LooksForAnEarlierPart(*one)));
            match self.is_confirmed(found) {
                true => actions.push(Action::AddsTheFreshPart),
                false if open.is_empty() => actions.push(Action::GivesTheFreshPartBack),
                false => {}
            }
        }
        if !state.has_ended {
            actions.push(Action::HolderEnds);
        }
        if state.other_wants == Some(true) {
            actions.push(Action::OtherEndsOrGivesUp);
            let others = state.servers.iter().filter(|data| **data == Data::Other);
            if others.count() >= QUORUM && !state.other_claims {
                actions.push(Action::OtherHasAMajority);
            }
        }
        if state.forced.is_none_or(|next| next < SERVERS) && state.forgotten == 0 {
            actions.push(Action::IsFreedByForceOnTheNextServer);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::HolderLearnsOfALostPart(server) => state.parts[server] = None,
            Action::AsksAMissingServer(server) => {
                state.last_part += 1;
                let part = state.last_part;
                state.servers[server] = Data::Part(part);
                let found = self.found_before(last);
                state.task = Task::Fresh {
                    server,
                    part,
                    found,
                };
            }
            Action::LooksForAnEarlierPart(one) => {
                let is_there = state.has_part(one);
                if let Task::Fresh { found, .. } = &mut state.task {
                    found[one] = Some(is_there);
                }
            }
            Action::AddsTheFreshPart => {
                let Task::Fresh { server, part, .. } = state.task else {
                    return None;
                };
                state.task = Task::Rests;
                if state.is_held() {
                    state.parts[server] = Some(part);
                } else if self.has(Rule::fresh_part_of_a_hold_that_ended_is_released) {
                    state.release(server, part);
                }
            }
            Action::GivesTheFreshPartBack => {
                let Task::Fresh { server, part, .. } = state.task else {
                    return None;
                };
                state.task = Task::Rests;
                state.release(server, part);
            }
            Action::HolderEnds => {
                state.has_ended = true;
                for server in 0..SERVERS {
                    if let Some(part) = state.parts[server].take() {
                        state.release(server, part);
                    }
                }
            }
            Action::OtherIsGranted(server) => {
                state.servers[server] = Data::Other;
                state.other_wants = Some(true);
            }
            Action::OtherHasAMajority => (state.other_claims, state.other_had_it) = (true, true),
            Action::OtherEndsOrGivesUp => {
                for data in &mut state.servers {
                    if *data == Data::Other {
                        *data = Data::Free;
                    }
                }
                state.other_wants = (!state.other_claims).then_some(false);
                state.other_claims = false;
            }
            Action::ServerForgets(server) => {
                state.servers[server] = Data::Free;
                state.forgotten += 1;
            }
            Action::IsFreedByForceOnTheNextServer => {
                let next = state.forced.unwrap_or_default();
                state.servers[next] = Data::Free;
                state.forced = Some(next + 1);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_TWO_CLAIMS, |_, state: &State| {
                state.forced.is_some() || !(state.is_held() && state.other_claims)
            }),
            Property::always(NOBODY_HAD_IT_BETWEEN, |_, state: &State| {
                !(state.is_at_rest() && state.is_held() && state.other_had_it)
            }),
            Property::always(IT_COMES_BACK, |model: &Self, state: &State| {
                let is_missing = |server: usize| {
                    state.parts[server].is_none() && state.servers[server] == Data::Free
                };
                let will_ask = (0..SERVERS).any(|server| model.may_ask(state, server));
                let is_at_rest = state.is_at_rest() && state.is_held() && !will_ask;
                let all_used = state.last_part >= SERVERS as u8 + MOST_FRESH;
                all_used || !is_at_rest || !(0..SERVERS).any(is_missing)
            }),
            Property::always(NOTHING_IS_LEFT, |_, state: &State| {
                let is_part = |data: &Data| matches!(data, Data::Part(_));
                !state.has_ended || state.task != Task::Rests || !state.servers.iter().any(is_part)
            }),
            Property::sometimes(OTHERS_GET_IT, |_, state: &State| {
                state.forced == Some(SERVERS) && state.other_had_it && !state.other_claims
            }),
            Property::sometimes(TWO_ARE_FORGOTTEN, |_, state: &State| {
                state.forgotten == 2 && (0..SERVERS).all(|server| state.has_part(server))
            }),
        ]
    }
}

#[test]
fn redlock_that_comes_back_has_one_owner() {
    check::holds("regain", model(None));
}

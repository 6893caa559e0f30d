//! A server that restarts without its data, and a client that takes nothing from it for a grace.
//!
//! One tick is half a second, because a server tells for how many whole seconds it has been up. The holder is cut off from the
//! server after its grant, so that nothing but its own clock tells it of the end.

use stateright::{Model, Property};

use crate::check;
use crate::rules::Rule;

pub(crate) const NO_TWO_CLAIMS: &str = "claims of one key do not overlap";
const GRANTS_AGAIN: &str = "after the grace the key is granted";
const GRACE_ENDS: &str =
    "the grace is less than two seconds too long, and the time that the answer took";

const SECOND: u8 = 2;
/// The lease of the holder, and so the grace.
const LEASE: u8 = 4 * SECOND;
const LAST: u8 = 24;

pub(crate) struct RestartGrace {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> RestartGrace {
    RestartGrace { without }
}

/// The connection of the client that comes later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Link {
    Down,
    /// It asks for how long the server has been up.
    Asks {
        since: u8,
        /// In ticks, and when the server said so.
        answer: Option<(u8, u8)>,
    },
    Up,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Attempt {
    None,
    /// It has looked at the grace, and waits for a connection.
    Begun,
    Sent {
        at: u8,
    },
    Granted {
        sent: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    /// When the server was started; `None` if that was long ago.
    started: Option<u8>,
    /// Until when the first client has its claim.
    first_claim: u8,
    /// Until when the server has a hold of the first client, and one of the second.
    first: u8,
    second: u8,
    link: Link,
    /// When the server may grant, as the second client knows from its last connection.
    grants_from: u8,
    /// By how much the answer was late that `grants_from` is from.
    delay: u8,
    attempt: Attempt,
    /// Until when the second client has a claim.
    claim: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    HalfASecondPasses,
    ServerRestartsEmpty,
    Connects,
    ServerTellsItsUptime,
    IsConnected,
    BeginsToAcquire,
    SendsTheAttempt,
    ServerTakesTheAttempt,
    TakesTheGrant,
}

impl RestartGrace {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn grace(&self) -> u8 {
        match self.has(Rule::grace_is_as_long_as_the_longest_lease) {
            true => LEASE,
            false => LEASE / 2,
        }
    }

    /// When the server may grant.
    fn grants_from(&self, since: u8, uptime: u8, now: u8) -> u8 {
        let from = match self.has(Rule::grace_counts_from_the_answer) {
            true => now,
            false => since,
        };
        let uptime = match self.has(Rule::uptime_is_counted_a_second_shorter) {
            true => uptime.saturating_sub(SECOND),
            false => uptime,
        };
        match self.grace().saturating_sub(uptime) {
            0 => 0,
            left => from + left,
        }
    }
}

impl Model for RestartGrace {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // The first client has sent its attempt, and the server took it then or a tick later.
        let granted = |(sent, at)| State {
            now: at,
            started: None,
            first_claim: sent + LEASE,
            first: at + LEASE,
            second: 0,
            link: Link::Up,
            grants_from: 0,
            delay: 0,
            attempt: Attempt::None,
            claim: 0,
        };
        [(0, 0), (0, 1), (1, 1), (1, 2)].map(granted).to_vec()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < LAST {
            actions.push(Action::HalfASecondPasses);
        }
        if state.started.is_none() {
            actions.push(Action::ServerRestartsEmpty);
        }
        actions.push(match &state.link {
            Link::Down => Action::Connects,
            Link::Asks { answer: None, .. } => Action::ServerTellsItsUptime,
            Link::Asks { .. } => Action::IsConnected,
            Link::Up => Action::SendsTheAttempt,
        });
        actions.push(match &state.attempt {
            Attempt::None => Action::BeginsToAcquire,
            Attempt::Sent { .. } => Action::ServerTakesTheAttempt,
            Attempt::Granted { .. } => Action::TakesTheGrant,
            Attempt::Begun => return,
        });
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::HalfASecondPasses => state.now += 1,
            Action::ServerRestartsEmpty => {
                state.started = Some(now);
                (state.first, state.second) = (0, 0);
                state.link = Link::Down;
                // What was sent is lost. An answer may have arrived.
                if matches!(state.attempt, Attempt::Sent { .. }) {
                    state.attempt = Attempt::None;
                }
            }
            Action::Connects => {
                state.link = Link::Asks {
                    since: now,
                    answer: None,
                }
            }
            Action::ServerTellsItsUptime => {
                if let Link::Asks { answer, .. } = &mut state.link {
                    // Redis subtracts two clocks that it reads in whole seconds.
                    let uptime = state.started.map_or(u8::MAX, |started| {
                        (now / SECOND - started / SECOND) * SECOND
                    });
                    *answer = Some((uptime, now));
                }
            }
            Action::IsConnected => {
                let Link::Asks { since, answer } = state.link else {
                    return None;
                };
                let (uptime, at) = answer?;
                state.grants_from = self.grants_from(since, uptime, now);
                state.delay = now - at;
                state.link = Link::Up;
            }
            Action::BeginsToAcquire => {
                // Only spares the server a grant that would be given back.
                if state.grants_from > now || state.claim > 0 {
                    return None;
                }
                state.attempt = Attempt::Begun;
            }
            Action::SendsTheAttempt => {
                if state.attempt != Attempt::Begun {
                    return None;
                }
                state.attempt = Attempt::Sent { at: now };
            }
            Action::ServerTakesTheAttempt => {
                let Attempt::Sent { at } = state.attempt else {
                    return None;
                };
                state.attempt = match state.first > now {
                    true => Attempt::None,
                    false => {
                        state.second = now + LEASE;
                        Attempt::Granted { sent: at }
                    }
                };
            }
            Action::TakesTheGrant => {
                let Attempt::Granted { sent } = state.attempt else {
                    return None;
                };
                state.attempt = Attempt::None;
                let is_early = state.grants_from > now
                    && self.has(Rule::grace_is_asked_for_again_after_the_grant);
                match is_early {
                    true => state.second = 0,
                    false => state.claim = sent + LEASE,
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_TWO_CLAIMS, |_, state: &State| {
                state.first_claim <= state.now || state.claim <= state.now
            }),
            Property::always(GRACE_ENDS, |model: &Self, state: &State| {
                let end = state.started.map(|started| started + model.grace());
                let longest = end.map(|end| end + 2 * SECOND + state.delay);
                state.link != Link::Up || longest.is_none_or(|end| state.grants_from < end)
            }),
            Property::sometimes(GRANTS_AGAIN, |_, state: &State| {
                state.started.is_some() && state.claim > state.now
            }),
        ]
    }
}

#[test]
fn restarted_server_makes_no_second_owner() {
    check::holds("restart grace", model(None));
}

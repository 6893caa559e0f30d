//! Attempts of one client that travel in batches, over one connection. What a broken connection does is in `releases`.
//!
//! A batch is collected, then taken to be sent, which may have to wait for a connection, then sent, and answered. Its caller may be
//! dropped at each of these moments. Its sender may give up: then the caller is told that the outcome is unknown, or that the batch
//! was not sent, and attempts again under the same owner.

use stateright::{Model, Property};

use crate::check;
use crate::rules::Rule;

pub(crate) const NO_TWO_CLAIMS: &str = "no two owners claim the key";
pub(crate) const NOTHING_IS_LEFT: &str = "at rest, nothing of an ended owner is in the server";
const GRANTED_BEHIND_ITS_RELEASE: &str =
    "the attempt of a caller that was dropped is granted behind its release";
const GRANTED_TWICE: &str = "a caller that was told of an unknown outcome holds the key, and its earlier attempt is granted as well";

/// Each has an owner of its own.
const MOST_ACQUISITIONS: u8 = 2;
const MOST_ATTEMPTS: u8 = 3;
const OTHER: u8 = u8::MAX;

pub(crate) struct Batches {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Batches {
    Batches { without }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Acquisition {
    None,
    /// An attempt is under way, in a batch or alone. `in_doubt`: nobody knows what has come of an earlier one.
    Waits {
        owner: u8,
        in_doubt: bool,
        is_together: bool,
    },
    /// The last attempt was refused or given up.
    Between {
        owner: u8,
        in_doubt: bool,
    },
    Holds {
        owner: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Waits,
    ToldUnknown,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Collected,
    Taken,
    Sent,
    Answered { is_granted: bool },
}

/// A batch, of which one attempt matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Batch {
    number: u8,
    owner: u8,
    caller: Caller,
    stage: Stage,
    /// The server has taken a release of its owner before.
    is_behind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    Batch(u8),
    Attempt(u8),
    /// Of the releaser.
    Release(u8),
    /// Of the batch.
    Withdrawal(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    server: Option<u8>,
    /// What the server has not taken yet, in order.
    wire: Vec<Command>,
    acquisition: Acquisition,
    batches: Vec<Batch>,
    /// The owners that the releaser has to end.
    pending: Vec<u8>,
    acquisitions: u8,
    attempts: u8,
    other_claims: bool,
    other_came: bool,
    was_granted_behind: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Attempts { is_together: bool },
    BatchIsTaken { number: u8, is_sent_unwanted: bool },
    BatchIsSent(u8),
    BatchIsAnswered(u8),
    ServerTakes,
    GivesUp,
    IsDropped,
    EndsTheHold,
    SendsTheRelease,
    OtherIsGranted,
    OtherReleases,
}

impl State {
    fn batch(&mut self, number: u8) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|batch| batch.number == number)
    }

    /// The batch whose answer the acquisition awaits.
    fn awaited(&mut self) -> Option<&mut Batch> {
        let waits = |batch: &&mut Batch| batch.caller == Caller::Waits;
        self.batches.iter_mut().find(waits)
    }

    /// The server carries out an attempt.
    fn attempted(&mut self, owner: u8) -> bool {
        let is_granted = self.server.is_none_or(|holder| holder == owner);
        if is_granted {
            self.server = Some(owner);
        }
        is_granted
    }

    fn released(&mut self, owner: u8) {
        if self.server == Some(owner) {
            self.server = None;
        }
    }

    /// The acquisition is told the answer to its attempt.
    fn told(&mut self, is_granted: bool) {
        if let Acquisition::Waits {
            owner, in_doubt, ..
        } = self.acquisition
        {
            self.acquisition = match is_granted {
                true => Acquisition::Holds { owner },
                false => Acquisition::Between { owner, in_doubt },
            };
        }
    }
}

impl Batches {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn attempt(state: &mut State, is_together: bool) {
        let (owner, in_doubt) = match state.acquisition {
            Acquisition::Between { owner, in_doubt } => (owner, in_doubt),
            _ => {
                state.acquisitions += 1;
                (state.acquisitions, false)
            }
        };
        state.attempts += 1;
        if is_together {
            state.batches.push(Batch {
                number: state.attempts,
                owner,
                caller: Caller::Waits,
                stage: Stage::Collected,
                is_behind: false,
            });
        } else {
            state.wire.push(Command::Attempt(owner));
        }
        state.acquisition = Acquisition::Waits {
            owner,
            in_doubt,
            is_together,
        };
    }

    /// What nobody waits for any more may be sent or not.
    fn take(state: &mut State, number: u8, is_sent_unwanted: bool) {
        if let Some(batch) = state.batch(number) {
            batch.stage = Stage::Taken;
            if batch.caller != Caller::Waits && !is_sent_unwanted {
                state.batches.retain(|batch| batch.number != number);
            }
        }
    }

    fn answer(&self, state: &mut State, number: u8) {
        let Some(at) = state.batches.iter().position(|one| one.number == number) else {
            return;
        };
        let batch = state.batches.remove(at);
        let is_granted = batch.stage == Stage::Answered { is_granted: true };
        let is_withdrawn = match batch.caller {
            Caller::Waits => {
                state.told(is_granted);
                false
            }
            Caller::Dropped => self.has(Rule::attempt_of_a_dropped_caller_is_withdrawn),
            // Nobody reads the answer any more.
            Caller::ToldUnknown => false,
        };
        if is_granted && is_withdrawn {
            state.wire.push(Command::Withdrawal(batch.owner));
        }
    }

    fn server_takes(state: &mut State) {
        match state.wire.remove(0) {
            Command::Batch(number) => {
                let Some(batch) = state.batch(number).copied() else {
                    return;
                };
                let is_granted = state.attempted(batch.owner);
                state.was_granted_behind |= is_granted && batch.is_behind;
                if let Some(batch) = state.batch(number) {
                    batch.stage = Stage::Answered { is_granted };
                }
            }
            Command::Attempt(owner) => {
                let is_granted = state.attempted(owner);
                let is_awaited = |acquisition| match acquisition {
                    Acquisition::Waits {
                        owner: of,
                        is_together: false,
                        ..
                    } => of == owner,
                    _ => false,
                };
                // The answer to an attempt that was given up is no longer awaited, and tells nothing of a later one.
                let is_last = !state.wire.contains(&Command::Attempt(owner));
                if is_awaited(state.acquisition) && is_last {
                    state.told(is_granted);
                }
            }
            Command::Release(owner) => {
                let is_sent_later =
                    |batch: &&mut Batch| batch.owner == owner && batch.caller == Caller::Dropped;
                for batch in state.batches.iter_mut().filter(is_sent_later) {
                    batch.is_behind = true;
                }
                state.released(owner);
            }
            Command::Withdrawal(owner) => state.released(owner),
        }
    }
}

impl Model for Batches {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: None,
            wire: Vec::new(),
            acquisition: Acquisition::None,
            batches: Vec::new(),
            pending: Vec::new(),
            acquisitions: 0,
            attempts: 0,
            other_claims: false,
            other_came: false,
            was_granted_behind: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let may_attempt = match state.acquisition {
            Acquisition::None => state.acquisitions < MOST_ACQUISITIONS,
            Acquisition::Between { .. } => true,
            Acquisition::Waits { .. } | Acquisition::Holds { .. } => false,
        };
        if may_attempt && state.attempts < MOST_ATTEMPTS {
            actions.extend([true, false].map(|is_together| Action::Attempts { is_together }));
        }
        match state.acquisition {
            Acquisition::None => {}
            Acquisition::Waits { .. } => {
                actions.push(Action::GivesUp);
                actions.push(Action::IsDropped);
            }
            Acquisition::Between { .. } => actions.push(Action::IsDropped),
            Acquisition::Holds { .. } => actions.push(Action::EndsTheHold),
        }
        for batch in &state.batches {
            match batch.stage {
                Stage::Collected => {
                    let number = batch.number;
                    let takes = [true, false].map(|is_sent_unwanted| Action::BatchIsTaken {
                        number,
                        is_sent_unwanted,
                    });
                    actions.extend(takes);
                }
                Stage::Taken => actions.push(Action::BatchIsSent(batch.number)),
                Stage::Sent => {}
                Stage::Answered { .. } => actions.push(Action::BatchIsAnswered(batch.number)),
            }
        }
        if !state.wire.is_empty() {
            actions.push(Action::ServerTakes);
        }
        if !state.pending.is_empty() {
            actions.push(Action::SendsTheRelease);
        }
        if state.server.is_none() && !state.other_came {
            actions.push(Action::OtherIsGranted);
        }
        if state.other_claims {
            actions.push(Action::OtherReleases);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Attempts { is_together } => Self::attempt(&mut state, is_together),
            Action::BatchIsTaken {
                number,
                is_sent_unwanted,
            } => Self::take(&mut state, number, is_sent_unwanted),
            Action::BatchIsSent(number) => {
                state.batch(number)?.stage = Stage::Sent;
                state.wire.push(Command::Batch(number));
            }
            Action::BatchIsAnswered(number) => self.answer(&mut state, number),
            Action::ServerTakes => Self::server_takes(&mut state),
            Action::GivesUp => {
                let Acquisition::Waits {
                    owner,
                    in_doubt: was_in_doubt,
                    ..
                } = state.acquisition
                else {
                    return None;
                };
                let mut in_doubt = true;
                if let Some(batch) = state.awaited() {
                    let number = batch.number;
                    let is_sent = matches!(batch.stage, Stage::Sent | Stage::Answered { .. });
                    batch.caller = Caller::ToldUnknown;
                    if !is_sent {
                        in_doubt = was_in_doubt;
                        state.batches.retain(|batch| batch.number != number);
                    }
                }
                state.acquisition = Acquisition::Between { owner, in_doubt };
            }
            Action::IsDropped => {
                let (owner, in_doubt) = match state.acquisition {
                    Acquisition::Waits { owner, .. } => (owner, true),
                    Acquisition::Between { owner, in_doubt } => (owner, in_doubt),
                    _ => return None,
                };
                if let Some(batch) = state.awaited() {
                    batch.caller = Caller::Dropped;
                }
                state.pending.extend(in_doubt.then_some(owner));
                state.acquisition = Acquisition::None;
            }
            Action::EndsTheHold => {
                let Acquisition::Holds { owner } = state.acquisition else {
                    return None;
                };
                state.pending.push(owner);
                state.acquisition = Acquisition::None;
            }
            Action::SendsTheRelease => {
                let owner = state.pending.remove(0);
                state.wire.push(Command::Release(owner));
            }
            Action::OtherIsGranted => {
                state.server = Some(OTHER);
                (state.other_claims, state.other_came) = (true, true);
            }
            Action::OtherReleases => {
                state.other_claims = false;
                state.released(OTHER);
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
                let is_idle = state.acquisition == Acquisition::None && state.pending.is_empty();
                let is_done = is_idle && state.wire.is_empty() && state.batches.is_empty();
                !is_done || state.server.is_none_or(|owner| owner == OTHER)
            }),
            Property::sometimes(GRANTED_BEHIND_ITS_RELEASE, |_, state: &State| {
                state.was_granted_behind
            }),
            Property::sometimes(GRANTED_TWICE, |_, state: &State| {
                let holds = matches!(state.acquisition, Acquisition::Holds { .. });
                let given_up = state.batches.iter().any(|batch| {
                    batch.caller == Caller::ToldUnknown
                        && batch.stage == Stage::Answered { is_granted: true }
                });
                holds && given_up
            }),
        ]
    }
}

#[test]
fn attempt_of_a_caller_that_has_left_leaves_nothing_and_takes_nothing_away() {
    check::holds("batches", model(None));
}

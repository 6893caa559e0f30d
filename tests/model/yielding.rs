//! Turns of two clients: one with many tasks that want the key again and again, and another one, which may have many threads too.
//!
//! There is no time here. A client that hears of a release, or that begins to listen, attempts within the time for which the other
//! one lets it go first.

use stateright::{Model, Property};

use crate::check;
use crate::rules::Rule;

pub(crate) const OTHERS_GET_A_TURN: &str =
    "a client that listens gets the key after the present run of the other one";
pub(crate) const OURS_GET_A_TURN: &str =
    "no more grants are left to another library than this client had";
pub(crate) const HEARD_IN_VAIN_ONCE: &str =
    "after a release that others heard, one more grant follows at most";
pub(crate) const THERE_ARE_GAPS: &str =
    "after a run of grants the key is free for a moment, for those that poll";
pub(crate) const NOBODY_SLEEPS: &str = "nobody sleeps while the key is free";
const FULL_TURN: &str = "a client of another library has a turn of several grants";
const ATTEMPT_BEHIND_A_RELEASE: &str =
    "an attempt behind a release is granted, and the other client has heard of the release";

/// How many grants follow the first one of a run, and how many if nobody else listened before.
const RUN: u8 = 2;
const RUN_ALONE: u8 = 3;
/// The longest run, which may have begun just after the other client began to listen.
const MOST_OURS: u8 = 1 + RUN_ALONE;
/// As many as in the longest run.
const MOST_THEIRS: u8 = 1 + RUN;

pub(crate) struct Yielding {
    without: Option<Rule>,
}

pub(crate) fn model(without: Option<Rule>) -> Yielding {
    Yielding { without }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Nobody,
    Ours,
    Theirs,
}

/// What the first task of this client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ours {
    Holds,
    /// Its release was sent. Whether tasks wait, or one comes later.
    Releases {
        is_alone: bool,
    },
    /// The server has taken the release. `granted`: and an attempt that was sent behind it.
    Released {
        is_alone: bool,
        others: u8,
        granted: bool,
    },
    /// Lets the other client go first.
    Yields,
    Asks,
    /// It was refused, and listens.
    Sleeps,
}

/// What the other client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Theirs {
    Away,
    /// It was refused, and subscribes.
    Subscribes,
    /// It listens, and has to attempt again.
    Listens,
    Sleeps,
    Woken,
    Holds,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    holder: Holder,
    ours: Ours,
    theirs: Theirs,
    grants: u8,
    is_over: bool,
    is_alone: bool,
    /// The grants that the other client has not had yet.
    owed: u8,
    /// Grants of this client while the other one waits, and those of the other one that this one left to it.
    our_grants: u8,
    their_grants: u8,
    /// Grants of this client since the other one heard of a release.
    since_heard: Option<u8>,
    /// Grants of this client between which the key was never free.
    without_a_gap: u8,
    was_granted_behind: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    GuardEnds,
    GuardEndsAndNobodyWaits,
    ServerTakesTheRelease,
    ServerTakesTheReleaseAndTheAttemptBehind,
    ReleaseIsAnswered,
    NobodyElseCameInTime,
    Asks,
    OthersCome,
    OthersListen,
    OthersAttemptAgain,
    OthersAttempt,
    OthersRelease,
    OthersReleaseAndMoreOfThemWait,
}

impl State {
    fn goes_on(&self) -> bool {
        let most = if self.is_alone { RUN_ALONE } else { RUN };
        !self.is_over && self.grants < most
    }

    /// Whether the other client waits and hears what this one releases.
    fn others_wait(&self) -> bool {
        !matches!(
            self.theirs,
            Theirs::Away | Theirs::Subscribes | Theirs::Holds
        )
    }

    /// Whether an attempt of the other client is on its way.
    fn others_attempt_soon(&self) -> bool {
        matches!(self.theirs, Theirs::Listens | Theirs::Woken)
    }

    fn we_were_granted(&mut self) {
        self.holder = Holder::Ours;
        self.their_grants = 0;
        self.since_heard = self.since_heard.map(|grants| (grants + 1).min(2));
        self.without_a_gap = (self.without_a_gap + 1).min(MOST_OURS + 1);
        if self.others_wait() {
            self.our_grants = (self.our_grants + 1).min(MOST_OURS + 1);
        }
    }

    fn they_were_granted(&mut self) {
        (self.holder, self.theirs) = (Holder::Theirs, Theirs::Holds);
        self.our_grants = 0;
        self.since_heard = None;
        if self.ours == Ours::Yields {
            self.their_grants = (self.their_grants + 1).min(MOST_THEIRS + 1);
        }
    }

    /// The message of a release of this client. Returns how many others hear it.
    fn publish(&mut self) -> u8 {
        if !self.others_wait() {
            return 0;
        }
        self.since_heard.get_or_insert(0);
        if self.theirs == Theirs::Sleeps {
            self.theirs = Theirs::Woken;
        }
        1
    }

    /// An attempt of the other client.
    fn others_attempt(&mut self, otherwise: Theirs) {
        match self.holder {
            Holder::Nobody => self.they_were_granted(),
            _ => self.theirs = otherwise,
        }
    }
}

impl Yielding {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn goes_on(&self, state: &State) -> bool {
        state.goes_on() || !self.has(Rule::run_of_hand_overs_is_limited)
    }

    fn count_grant(state: &mut State) {
        state.grants = (state.grants + 1).min(RUN_ALONE);
    }

    /// The release was answered.
    fn freed(&self, state: &mut State, is_alone: bool, others: u8, granted: bool) {
        let turn = state.grants.min(RUN) + 1;
        state.is_alone = others == 0;
        if others > 0 && self.has(Rule::run_ends_once_others_listen) {
            state.is_over = true;
        }
        if granted {
            state.ours = Ours::Holds;
            return;
        }
        let yields = match is_alone {
            false => self.has(Rule::others_go_first_after_a_release),
            true => self.has(Rule::release_is_remembered_for_who_comes_next),
        };
        (state.ours, state.owed) = match others > 0 && yields {
            true => (Ours::Yields, others * turn),
            false => (Ours::Asks, 0),
        };
    }

    /// The other client has released the key.
    fn others_released(&self, state: &mut State) {
        state.holder = Holder::Nobody;
        if self.has(Rule::grants_of_others_are_counted) {
            state.owed = state.owed.saturating_sub(1);
        }
        if matches!(state.ours, Ours::Sleeps | Ours::Yields) {
            state.ours = match state.owed {
                0 => Ours::Asks,
                _ => Ours::Yields,
            };
        }
    }
}

impl Model for Yielding {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            holder: Holder::Nobody,
            ours: Ours::Asks,
            theirs: Theirs::Away,
            grants: 0,
            is_over: false,
            is_alone: false,
            owed: 0,
            our_grants: 0,
            their_grants: 0,
            since_heard: None,
            without_a_gap: 0,
            was_granted_behind: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.ours {
            Ours::Holds => actions.extend([Action::GuardEnds, Action::GuardEndsAndNobodyWaits]),
            Ours::Releases { .. } => {
                actions.push(Action::ServerTakesTheRelease);
                if self.goes_on(state) {
                    actions.push(Action::ServerTakesTheReleaseAndTheAttemptBehind);
                }
            }
            Ours::Released { .. } => actions.push(Action::ReleaseIsAnswered),
            Ours::Yields if !state.others_attempt_soon() => {
                actions.push(Action::NobodyElseCameInTime);
            }
            Ours::Asks => actions.push(Action::Asks),
            Ours::Yields | Ours::Sleeps => {}
        }
        match state.theirs {
            Theirs::Away => actions.push(Action::OthersCome),
            Theirs::Subscribes => actions.push(Action::OthersListen),
            Theirs::Listens => actions.push(Action::OthersAttemptAgain),
            Theirs::Woken => actions.push(Action::OthersAttempt),
            Theirs::Holds => {
                actions.push(Action::OthersRelease);
                actions.push(Action::OthersReleaseAndMoreOfThemWait);
            }
            Theirs::Sleeps => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::GuardEnds if self.goes_on(&state) => {
                Self::count_grant(&mut state);
                state.we_were_granted();
            }
            Action::GuardEnds => state.ours = Ours::Releases { is_alone: false },
            Action::GuardEndsAndNobodyWaits => state.ours = Ours::Releases { is_alone: true },
            Action::ServerTakesTheRelease | Action::ServerTakesTheReleaseAndTheAttemptBehind => {
                let Ours::Releases { is_alone } = state.ours else {
                    return None;
                };
                state.holder = Holder::Nobody;
                let others = state.publish();
                let granted = action == Action::ServerTakesTheReleaseAndTheAttemptBehind;
                if granted {
                    if self.has(Rule::attempt_behind_a_release_counts_as_a_grant) {
                        Self::count_grant(&mut state);
                    }
                    state.we_were_granted();
                    state.was_granted_behind |= others > 0;
                } else {
                    state.without_a_gap = 0;
                }
                state.ours = Ours::Released {
                    is_alone,
                    others,
                    granted,
                };
            }
            Action::ReleaseIsAnswered => {
                let Ours::Released {
                    is_alone,
                    others,
                    granted,
                } = state.ours
                else {
                    return None;
                };
                self.freed(&mut state, is_alone, others, granted);
            }
            Action::NobodyElseCameInTime => {
                state.ours = match state.holder {
                    Holder::Theirs => Ours::Sleeps,
                    _ => Ours::Asks,
                };
            }
            Action::Asks if state.holder == Holder::Nobody => {
                (state.grants, state.is_over, state.owed) = (0, false, 0);
                state.we_were_granted();
                state.ours = Ours::Holds;
            }
            Action::Asks => state.ours = Ours::Sleeps,
            Action::OthersCome => state.others_attempt(Theirs::Subscribes),
            Action::OthersListen => {
                state.theirs = match self.has(Rule::who_listens_attempts_once_more) {
                    true => Theirs::Listens,
                    false => Theirs::Sleeps,
                };
            }
            Action::OthersAttemptAgain | Action::OthersAttempt => {
                state.others_attempt(Theirs::Sleeps);
            }
            Action::OthersRelease => {
                state.theirs = Theirs::Away;
                self.others_released(&mut state);
            }
            Action::OthersReleaseAndMoreOfThemWait => {
                // They hear the message as well.
                state.theirs = Theirs::Woken;
                self.others_released(&mut state);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(OTHERS_GET_A_TURN, |_, state: &State| {
                state.our_grants <= MOST_OURS
            }),
            Property::always(OURS_GET_A_TURN, |_, state: &State| {
                state.their_grants <= MOST_THEIRS
            }),
            Property::always(HEARD_IN_VAIN_ONCE, |_, state: &State| {
                state.since_heard.is_none_or(|grants| grants <= 1)
            }),
            Property::always(THERE_ARE_GAPS, |_, state: &State| {
                state.without_a_gap <= MOST_OURS
            }),
            Property::always(NOBODY_SLEEPS, |_, state: &State| {
                let sleeps = state.theirs == Theirs::Sleeps || state.ours == Ours::Sleeps;
                state.holder != Holder::Nobody || !sleeps
            }),
            Property::sometimes(FULL_TURN, |_, state: &State| {
                state.their_grants == MOST_THEIRS && state.owed == 1
            }),
            Property::sometimes(ATTEMPT_BEHIND_A_RELEASE, |_, state: &State| {
                state.was_granted_behind
            }),
        ]
    }
}

#[test]
fn each_client_gets_its_turn() {
    check::holds("yielding", model(None));
}

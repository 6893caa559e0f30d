//! What the client, the server and the other client have, and the steps that change it.

use super::{MOST_OWNERS, MOST_TIMEOUTS};

/// A request of the client, sent over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) over: u8,
    /// The answer, once the server has taken the request. It may arrive after the connection has ended.
    pub(super) answer: Option<bool>,
}

/// A hold of the client, from its grant to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) owner: u8,
    /// The connection over which it was asked for last.
    pub(super) asked_over: u8,
    pub(super) is_doubted: bool,
    pub(super) question: Option<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Remembered {
    pub(super) owner: u8,
    pub(super) over: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) server: Option<u8>,
    /// What a copy of the server has that misses the last write.
    pub(super) copy: Option<u8>,
    pub(super) faults: u8,
    /// How many requests were lost on a connection that stands.
    pub(super) timeouts: u8,
    pub(super) is_up: bool,
    pub(super) epoch: u8,
    /// The connection whose coming the watchdog's task has seen.
    pub(super) seen: u8,
    pub(super) owners: u8,
    pub(super) attempt: Option<Request>,
    pub(super) hold: Option<Hold>,
    /// The releases that are pending, by their owners.
    pub(super) releases: [Option<Request>; MOST_OWNERS as usize],
    pub(super) is_pending: [bool; MOST_OWNERS as usize],
    pub(super) remembered: Vec<Remembered>,
    pub(super) other_claims: bool,
    pub(super) other_came: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    CopyCatchesUp,
    CopyTakesOver,
    ServerRestartsEmpty,
    ConnectionBreaks,
    Reconnects,
    WatchdogSeesTheConnection,
    SendsAnAttempt,
    ServerTakesTheAttempt,
    TakesTheAnswer,
    LosesTheAttempt,
    AsksForTheHold,
    ServerTakesTheQuestion,
    TakesTheAnswerToTheQuestion,
    LosesTheQuestion,
    EndsTheHold,
    SendsTheRelease(u8),
    ServerTakesTheRelease(u8),
    TakesTheAnswerToTheRelease {
        owner: u8,
        /// Those that are remembered were answered so long ago that they may be forgotten.
        is_long_after: bool,
    },
    LosesTheRelease(u8),
    OtherIsGranted,
    OtherReleases,
}

impl State {
    pub(super) fn write(&mut self, owner: Option<u8>) {
        self.copy = self.server;
        self.server = owner;
    }

    /// The connection has ended, and what is under way may be lost.
    pub(super) fn down(&mut self) {
        self.is_up = false;
    }

    /// Whether a request can still reach the server.
    pub(super) fn reaches(&self, request: &Request) -> bool {
        self.is_up && request.over == self.epoch && request.answer.is_none()
    }

    /// Whether the connection of a request has ended.
    pub(super) fn is_broken(&self, request: &Request) -> bool {
        !self.is_up || request.over != self.epoch
    }

    /// Whether a request, or its answer, may be lost.
    pub(super) fn may_be_lost(&self, request: &Request) -> bool {
        self.is_broken(request) || self.timeouts < MOST_TIMEOUTS
    }

    pub(super) fn lose(&mut self, request: &Request) {
        self.timeouts += u8::from(!self.is_broken(request));
    }

    pub(super) fn release_later(&mut self, owner: u8) {
        self.is_pending[usize::from(owner - 1)] = true;
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let is_asking = |hold: Hold| hold.is_doubted || hold.question.is_some();
        self.is_up
            && self.seen == self.epoch
            && self.attempt.is_none()
            && !self.hold.is_some_and(is_asking)
            && self.is_pending == [false; MOST_OWNERS as usize]
    }
}

//! What the acquisitions, the messages and the server are at, and the steps that change it.

use super::MOST_LOST;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Attempt(u8),
    Release(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) over: u8,
    pub(super) request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Acquisition {
    None,
    Waits {
        owner: u8,
        /// Whether an answer is awaited, and over which connection.
        awaits: Option<u8>,
        /// The connection of the first attempt of unknown outcome, without and with the last one.
        before: Option<u8>,
        in_doubt: Option<u8>,
    },
    Holds {
        owner: u8,
        in_doubt: Option<u8>,
    },
}

/// A release in the client's list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) owner: u8,
    /// Whether the owner had a hold. Nobody is told of a loss otherwise.
    pub(super) is_of_hold: bool,
    pub(super) in_doubt: Option<u8>,
    pub(super) awaits: Option<u8>,
    /// Whether an earlier try may have been carried out.
    pub(super) may_be_done: bool,
    pub(super) is_answered: bool,
    /// Whether no attempt of the owner can be carried out any more.
    pub(super) is_time_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) server: Option<u8>,
    pub(super) connection: u8,
    pub(super) lost: u8,
    /// What was sent and not taken yet, in order for each connection.
    pub(super) wire: Vec<Message>,
    pub(super) acquisition: Acquisition,
    pub(super) pending: Vec<Pending>,
    pub(super) owners: u8,
    pub(super) acquisitions: u8,
    pub(super) attempts: u8,
    pub(super) is_wait_over: bool,
    pub(super) other_claims: bool,
    pub(super) other_came: u8,
    pub(super) was_its_own_refusal: bool,
    pub(super) was_false_loss: bool,
    pub(super) was_granted_late: bool,
    pub(super) was_carried_out_late: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    ConnectionIsReplaced,
    SendsAnAttempt,
    ServerTakes { at: usize, is_answered: bool },
    IsLostOnTheWay(usize),
    HearsNoAnswer,
    GivesUp,
    WaitEnds,
    EndsTheHold,
    SendsTheRelease(usize),
    HearsNoAnswerToTheRelease(usize),
    NothingCanComeLate(usize),
    OtherIsGranted,
    OtherReleases,
}

impl State {
    /// Whether this message is the first one of its connection.
    pub(super) fn is_first(&self, at: usize) -> bool {
        let over = self.wire[at].over;
        !self.wire[..at].iter().any(|one| one.over == over)
    }

    /// Whether the sender of a message awaits its answer over this connection.
    pub(super) fn is_awaited(&self, message: Message) -> bool {
        let awaits = match message.request {
            Request::Attempt(of) => match self.acquisition {
                Acquisition::Waits { owner, awaits, .. } if owner == of => awaits,
                _ => None,
            },
            Request::Release(of) => {
                let mut pending = self.pending.iter();
                pending
                    .find(|one| one.owner == of)
                    .and_then(|one| one.awaits)
            }
        };
        awaits == Some(message.over) && message.over == self.connection
    }

    pub(super) fn pending_of(&mut self, owner: u8, is_of_hold: bool, in_doubt: Option<u8>) {
        self.pending.push(Pending {
            owner,
            is_of_hold,
            in_doubt,
            awaits: None,
            may_be_done: false,
            is_answered: false,
            is_time_over: false,
        });
    }

    pub(super) fn may_lose(&self, over: u8) -> bool {
        over != self.connection || self.lost < MOST_LOST
    }

    pub(super) fn lose(&mut self, over: u8) {
        self.lost += u8::from(over == self.connection);
    }
}

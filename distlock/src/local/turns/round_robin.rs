//! Which of the clients that wait for a key goes first, as far as one of them can know.
//!
//! The server publishes a release to its subscribers in an order that stays the same. If each client attempted as soon as
//! it heard of a release, the first ones in that order would win each time. So a client counts how many others heard of its
//! last release, and which turns others had since then. The difference is the number of clients that have waited longer than
//! this one. It lets them go first. The client that has waited longest attempts at once, so the key is not free
//! for longer than without this rule. The others need no attempt of their own to count the turns, if each message ends one.
//!
//! A turn has as many grants as the last turn of this client, 160 at most. A client of this crate takes its whole turn with
//! one grant in the server. A client of another library releases each of its grants in the server, so these are counted one
//! by one.

use std::num::NonZeroU32;

/// The count of one client for one key. A client that has not released the key yet goes first. Small, because each hold has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundRobin {
    /// The grants of a turn.
    turn: u16,
    /// The grants that others have not had yet.
    owed: u32,
    /// How many other clients heard of the release.
    others: u16,
    /// Which message of the channel that of this client's release is, or will be, if the client knows.
    own_message: Option<NonZeroU32>,
}

impl RoundRobin {
    /// This client has released the key after a turn of `turn` grants. `others`: how many other clients heard of the release.
    pub(crate) fn released(others: u32, turn: u32) -> Self {
        Self {
            turn: u16::try_from(turn).unwrap_or(u16::MAX),
            // Saturating: the server says how many others there are.
            owed: others.saturating_mul(turn),
            others: u16::try_from(others).unwrap_or(u16::MAX),
            own_message: None,
        }
    }

    /// The client has the key, and the message of its release will have this number.
    pub(crate) fn holding(own_message: Option<NonZeroU32>) -> Self {
        Self::default().with_own_message(own_message)
    }

    /// The message of this client's release has this number.
    pub(crate) fn with_own_message(self, own_message: Option<NonZeroU32>) -> Self {
        Self {
            own_message,
            ..self
        }
    }

    /// Which message of the channel that of this client's release is, if the client knows. The turns of others are after the
    /// messages from this one on.
    pub(crate) fn own_message(self) -> Option<NonZeroU32> {
        self.own_message
    }

    /// Whether as many messages came after that of this client's release as others had heard of it, so that most likely each of them
    /// had a turn. `heard`: how many messages have arrived.
    pub(crate) fn have_all_had_a_turn(self, heard: i64) -> bool {
        let of_others = self.own_message.map(|own| heard - i64::from(own.get()));
        of_others.is_some_and(|messages| messages >= i64::from(self.others))
    }

    /// Another client had a turn.
    pub(crate) fn other_had_turn(&mut self) {
        self.others_had_whole_turns(1);
    }

    /// Other clients had this number of turns.
    pub(crate) fn others_had_whole_turns(&mut self, turns: u32) {
        self.others_granted(u32::from(self.turn).saturating_mul(turns));
    }

    /// Other clients had turns, which published this number of messages. If a turn has several grants, several messages may
    /// belong to one turn.
    pub(crate) fn others_had_turns(&mut self, messages: u32) {
        if self.has_turns_of_one_grant() {
            self.others_granted(messages)
        } else {
            self.other_had_turn()
        }
    }

    /// Other clients had this number of grants.
    pub(crate) fn others_granted(&mut self, grants: u32) {
        // A rule of tests/model: grants_of_others_are_counted.
        self.owed = self.owed.saturating_sub(grants);
    }

    /// Whether this client has released the key, and counts the turns of others since then.
    pub(crate) fn takes_turns(self) -> bool {
        self.turn > 0
    }

    /// Whether each message ends a turn, also one of another library.
    pub(crate) fn has_turns_of_one_grant(self) -> bool {
        self.turn == 1
    }

    /// How many other clients have waited longer.
    pub(crate) fn ahead(self) -> u32 {
        // The turn is 0 until the client has released the key once.
        self.owed.div_ceil(self.turn.max(1).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_heard_is_ahead_until_it_had_a_turn() {
        let mut count = RoundRobin::released(2, 5);
        assert_eq!(count.ahead(), 2);
        count.other_had_turn();
        assert_eq!(count.ahead(), 1);
        count.other_had_turn();
        count.other_had_turn();
        assert_eq!(count.ahead(), 0);
        assert_eq!(RoundRobin::default().ahead(), 0);
    }

    #[test]
    fn all_had_a_turn_after_as_many_messages_as_clients_heard_of_the_release() {
        let count = RoundRobin::released(2, 5).with_own_message(NonZeroU32::new(7));
        let heard = [7, 8, 9, 10].map(|heard| count.have_all_had_a_turn(heard));
        assert_eq!(heard, [false, false, true, true]);
        assert!(!RoundRobin::released(2, 5).have_all_had_a_turn(100));
    }

    #[test]
    fn client_that_releases_each_grant_is_ahead_until_it_had_as_many() {
        let mut count = RoundRobin::released(2, 3);
        let ahead = [1; 6].map(|grants| {
            count.others_granted(grants);
            count.ahead()
        });
        assert_eq!(ahead, [2, 2, 1, 1, 1, 0]);
    }
}

//! Which of the clients that wait for a key goes first, as far as one of them can know.
//!
//! The server publishes a release to its subscribers in an order that stays the same. If each client attempted as soon as
//! it heard of a release, the first ones in that order would win each time. So a client counts how many others heard of its
//! own last release, and how many grants went to others since then. The difference is the number of clients that have
//! waited for longer than this one. It gives each of them a round trip before it attempts. The client that has waited
//! longest attempts at once, so the key is not free for longer than without this rule.

/// The count of one client for one key. A client that has not released the key yet goes first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundRobin {
    others: u32,
    granted: u32,
}

impl RoundRobin {
    /// This client has released the key, and so many other clients heard of it.
    pub(super) fn released(others: u32) -> Self {
        Self { others, granted: 0 }
    }

    /// Another client has the key.
    pub(super) fn other_granted(&mut self) {
        self.granted = self.granted.saturating_add(1);
    }

    /// How many other clients have waited for longer.
    pub(super) fn ahead(self) -> u32 {
        self.others.saturating_sub(self.granted)
    }
}

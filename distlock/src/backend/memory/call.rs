//! When a verb runs, and for which client.

use std::time::Duration;

use crate::clock::Tick;

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: u64,
    pub(super) now: Tick,
    /// How long the server remembers a request that takes effect once.
    pub(super) remembered: Duration,
    pub(super) owners_remembered: Duration,
    /// How long it remembers that a latch was opened.
    pub(super) opening_remembered: Duration,
}

// Not calculated for each call: few verbs remember anything.
impl Call {
    /// Until when the server remembers that this request took effect.
    pub(super) fn remember_until(self) -> Tick {
        self.now.after(self.remembered)
    }

    /// Until when it refuses an owner whose attempt was withdrawn.
    pub(super) fn ended_until(self) -> Tick {
        self.now.after(self.owners_remembered)
    }

    /// Until when it remembers that a latch was opened.
    pub(super) fn opened_until(self) -> Tick {
        self.now.after(self.opening_remembered)
    }
}

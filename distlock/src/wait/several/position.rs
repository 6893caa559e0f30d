//! Where an acquisition of several keys waits.

use std::time::Duration;

use crate::clock::Tick;
use crate::local::{Ticket, WaiterSlot};
use crate::wait::request::Request;

/// Where an acquisition waits, and what it keeps when it waits for another of its keys next.
pub(super) struct WaitPosition {
    /// The index of the key.
    pub(super) at: usize,
    pub(super) rank: Option<Ticket>,
    /// Counts it as a waiter.
    pub(super) waiter_slot: Option<WaiterSlot>,
    /// Since when it has been in nobody's way.
    pub(super) unhindered_since: Tick,
    /// How often it collected and did not get all keys.
    pub(super) failed: u32,
    /// What it does before it waits again.
    pub(super) rest: Rest,
    pub(super) unanswered: UnansweredBeside,
    /// How long it has taken keys in a row that were all granted, and not held together.
    pub(super) too_slow_for: Duration,
}

/// The key whose server did not answer when it was asked beside others, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnansweredBeside(Option<(usize, Tick)>);

impl UnansweredBeside {
    /// The server of the key with this index did not answer an attempt that was sent at `sent`. Returns since when it has not.
    pub(super) fn note(&mut self, at: usize, sent: Tick) -> Tick {
        // Of another key nothing is kept: only attempts in a row count, and they go to one key.
        let earlier = self.0.filter(|(other, _)| *other == at);
        let since = earlier.map_or(sent, |(_, since)| since);
        self.0 = Some((at, since));
        since
    }

    pub(super) fn answered(&mut self, at: usize) {
        self.0 = self.0.filter(|(other, _)| *other != at);
    }
}

/// For how long an acquisition rests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub(super) until: Tick,
    /// Whether it ends when all keys are free.
    pub(super) keeps_slots: bool,
}

impl WaitPosition {
    pub(super) fn first(request: &Request) -> Self {
        Self {
            at: 0,
            rank: None,
            waiter_slot: None,
            unhindered_since: request.since,
            failed: 0,
            rest: Rest::none(request.since),
            unanswered: UnansweredBeside::default(),
            too_slow_for: Duration::ZERO,
        }
    }
}

impl Rest {
    pub(super) fn none(now: Tick) -> Self {
        Self {
            until: now,
            keeps_slots: false,
        }
    }
}

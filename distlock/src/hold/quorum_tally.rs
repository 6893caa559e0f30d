//! The hold of a Redlock as the log and the metrics see it.
//!
//! Its parts are holds on several servers, and none of them is a lock. So a part counts nothing: the Redlock counts as one hold, which
//! is lost when fewer than a majority of its parts are left.

use std::sync::Arc;

use super::grant::GuardClient;
use crate::clock::Tick;
use crate::error::Loss;
use crate::sync::Mutex;
use crate::telemetry::Meter;

/// What the parts of a Redlock's hold count together.
#[derive(Debug)]
pub(crate) struct QuorumTally {
    needs: usize,
    meter: Meter,
    /// The client of the first part, whose clock measures how long the lock is held.
    client: Arc<GuardClient>,
    since: Tick,
    state: Mutex<TallyState>,
}

#[derive(Debug)]
struct TallyState {
    /// How many parts were not lost.
    left: usize,
    is_lost: bool,
    /// Whether the hold has ended for the metrics: its last guard has ended, or it is lost.
    is_over: bool,
}

impl QuorumTally {
    /// Counts a hold that begins now with this number of parts, of which it needs `needs`. `client`: that of the first part.
    pub(super) fn begin(
        client: &Arc<GuardClient>,
        parts: usize,
        needs: usize,
        meter: Meter,
    ) -> Arc<Self> {
        meter.hold_began();
        Arc::new(Self {
            needs,
            meter,
            client: Arc::clone(client),
            since: client.clock.now(),
            state: Mutex::new(TallyState {
                left: parts,
                is_lost: false,
                is_over: false,
            }),
        })
    }

    /// Adds a part with which the hold has come back to a server.
    pub(crate) fn add_part(&self) {
        self.state.lock().left += 1;
    }

    /// A part that was added had been lost before.
    pub(crate) fn lacks_part(&self) {
        let mut state = self.state.lock();
        state.left = state.left.saturating_sub(1);
    }

    /// A part was lost. Returns whether the lock is lost by that, which is so once.
    pub(super) fn lose_part(&self) -> bool {
        let mut state = self.state.lock();
        state.left = state.left.saturating_sub(1);
        state.left < self.needs && !std::mem::replace(&mut state.is_lost, true)
    }

    /// The lock is lost by the clock, whatever its parts have found out. Returns whether that is new.
    pub(crate) fn lose(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_lost, true)
    }

    /// Counts the loss of the lock.
    pub(super) fn count_loss(&self, loss: Loss) {
        self.meter.lost(loss);
        self.end();
    }

    /// Counts the hold out, if that was not done before: its last guard has ended, or it is lost.
    pub(crate) fn end(&self) {
        if !std::mem::replace(&mut self.state.lock().is_over, true) {
            self.meter.hold_ended();
            self.meter.held(self.client.clock.now().since(self.since));
        }
    }
}

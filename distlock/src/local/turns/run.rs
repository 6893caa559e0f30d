//! How many grants of one key follow each other in this client without a turn of other processes.

use crate::clock::Tick;
use crate::config::{
    HAND_OVER_GRANTS, HAND_OVER_GRANTS_ALONE, HAND_OVER_TIME, HAND_OVER_TIME_ALONE,
};

/// How long holds of this client have followed each other by hand-over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrantRun {
    /// The grants that followed the first one.
    grants: u32,
    since: Tick,
    is_over: bool,
    /// Whether no other client listened to the last release, before or in this run.
    is_alone: bool,
}

impl GrantRun {
    /// Starts again with a grant of the backend at `now`.
    pub(crate) fn begin(&mut self, now: Tick) {
        *self = Self {
            grants: 0,
            since: now,
            is_over: false,
            // `is_alone` stays: it was learnt from the last release, which was before this run.
            ..*self
        };
    }

    /// Whether it has no other grant than the first one, and nothing else is known of it.
    pub(crate) fn is_new(self) -> bool {
        self.grants == 0 && !self.is_over && !self.is_alone
    }

    /// Whether one more grant may follow without a turn of other processes.
    pub(crate) fn goes_on(self, now: Tick) -> bool {
        // A rule of tests/model: run_of_hand_overs_is_limited.
        let lasts = now.since(self.since);
        let has_grants_left = if self.is_alone {
            self.grants < HAND_OVER_GRANTS_ALONE || lasts < HAND_OVER_TIME_ALONE
        } else {
            self.grants < HAND_OVER_GRANTS
        };
        !self.is_over && has_grants_left && lasts < HAND_OVER_TIME
    }

    /// How many grants another client gets after this run. It is not given more for a time in which it did not wait.
    pub(crate) fn turn_of_others(self) -> u32 {
        (self.grants + 1).min(HAND_OVER_GRANTS + 1)
    }

    /// The server has answered a release. `is_alone`: no other client listened to its message.
    pub(crate) fn released(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Counts a grant that follows without a turn of other processes.
    pub(crate) fn count_grant(&mut self) {
        self.grants += 1;
    }

    /// After the present holder, other processes get a turn.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }
}

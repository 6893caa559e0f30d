//! Whether the server is asked for a hold ahead of its time: the server may have lost it, or guards have handed it over.
//!
//! Plain data, as the lease itself.

use crate::clock::Tick;
use crate::config::CONFIRM_INTERVAL;

/// What a hold has to be verified for. A reason stays until a renewal is confirmed that was sent after it came up.
#[derive(Debug)]
pub(crate) struct Verification {
    /// When the last command was sent that showed that the server has the hold.
    confirmed: Tick,
    /// Since when there is a reason to ask the server for the hold at once. `NEVER` if there is none.
    doubted_since: Tick,
    /// Since when the hold was handed over without asking the server for it. `NEVER` if it was not.
    passed_on_since: Tick,
    /// How many guards have handed it over since the server confirmed it.
    passed_on: u32,
    /// How many of them had done so when the renewal in flight was sent.
    asked_about: u32,
}

impl Verification {
    /// That of a hold that was granted by a command of this time.
    pub(super) fn granted(sent: Tick) -> Self {
        Self {
            confirmed: sent,
            doubted_since: Tick::NEVER,
            passed_on_since: Tick::NEVER,
            passed_on: 0,
            asked_about: 0,
        }
    }

    /// The server may have lost the hold, and is asked for it at once.
    pub(crate) fn verify(&mut self, now: Tick) {
        self.doubted_since = self.doubted_since.min(now);
    }

    /// A guard has handed the hold over at `now`. The server is asked for the hold now, or at the end of the
    /// [`CONFIRM_INTERVAL`].
    pub(crate) fn passed_on(&mut self, now: Tick) {
        // A rule of tests/model: hand_over_is_confirmed.
        self.passed_on += 1;
        self.passed_on_since = self.passed_on_since.min(now);
    }

    /// How many guards have handed the hold over since the server confirmed it.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.passed_on
    }

    /// When to ask the server whether it still has the hold. Whole milliseconds, so that the questions for many keys go
    /// in one batch.
    // Inlined, as methods of the guards are: the compiler may put this file and the lease into different units.
    #[inline]
    pub(super) fn due_at(&self) -> Tick {
        let earliest = self.confirmed.after(CONFIRM_INTERVAL);
        let passed_on = self.passed_on_since.max(earliest).to_whole_millis();
        self.doubted_since.min(passed_on)
    }

    /// A renewal is sent now. It does not answer what comes up from now on.
    pub(super) fn asked(&mut self) {
        self.doubted_since = Tick::NEVER;
        self.passed_on_since = Tick::NEVER;
        self.asked_about = self.passed_on;
    }

    /// The server has confirmed the hold by the renewal that was sent at `sent`.
    pub(super) fn confirmed(&mut self, sent: Tick) {
        self.confirmed = self.confirmed.max(sent);
        // Only the hand-overs from before the renewal was sent: the server says nothing about later ones.
        self.passed_on -= std::mem::take(&mut self.asked_about);
    }
}

//! The messages that a waiter listens to, and the turns of other clients that they show.

use std::num::NonZeroU32;

use crate::backend::{Backend, Subscription, Target};
use crate::clock::{Clock, Tick};
use crate::local::QueueSlot;

/// A waiter's subscription, and how many of its messages were counted as turns of others.
pub(super) struct Listener {
    subscription: Subscription,
    /// The number of the last message after which another client is known to have had its turn.
    counted: i64,
}

impl Listener {
    /// Listens for a target. What others have published before shows no turns.
    pub(super) fn new(backend: &dyn Backend, target: &Target) -> Self {
        let subscription = backend.subscribe(target);
        Self {
            counted: subscription.messages(),
            subscription,
        }
    }

    /// Whether messages arrive, as far as this client knows.
    pub(super) fn is_active(&self) -> bool {
        self.subscription.is_active()
    }

    /// The messages that have arrived so far do not count as new.
    pub(super) fn mark_seen(&mut self) {
        self.subscription.mark_seen();
    }

    /// Completes with the next message, or when messages arrive from now on.
    pub(super) fn changed(&mut self, was_active: bool) -> impl Future<Output = ()> {
        self.subscription.changed(was_active)
    }

    /// Completes with the next message, and at `until` at the latest.
    pub(super) async fn changed_before(&mut self, clock: &Clock, until: Tick) {
        let was_active = self.is_active();
        crate::sync::select! {
            () = self.subscription.changed(was_active) => {}
            // A message that comes later stays in the subscription, and counts as new then.
            () = clock.sleep_until(until) => {}
        }
    }

    /// How many messages have arrived.
    pub(super) fn messages(&self) -> i64 {
        self.subscription.messages()
    }

    /// How many messages have arrived, if messages arrive.
    pub(super) fn heard(&self) -> Option<i64> {
        self.is_active().then(|| self.messages())
    }

    /// This client has released the key, and the turns after that message are not counted yet. Without its number it is the last one
    /// that has arrived, most likely.
    pub(super) fn count_from_own_message(&mut self, number: Option<NonZeroU32>) {
        self.counted = before_own_message(number, self.messages());
    }

    /// The turns after the messages up to this one are known otherwise.
    pub(super) fn skip_turns(&mut self, message: i64) {
        self.counted = message;
    }

    /// Another client has the key now. Counts its turn, and those before it, each of which may have published several messages.
    pub(super) fn count_turns(&mut self, slot: &QueueSlot<'_>) {
        let turns = self.uncounted(self.messages());
        if turns > 0 {
            slot.with_round_robin(|count| count.others_had_turns(turns));
        }
    }

    /// Counts a turn after each message up to the one with this number.
    pub(super) fn count_whole_turns_before(&mut self, message: i64, slot: &QueueSlot<'_>) {
        let turns = self.uncounted(message);
        if turns > 0 {
            slot.with_round_robin(|count| count.others_had_whole_turns(turns));
        }
    }

    /// How many messages up to this one are not counted yet. They count as counted from now on.
    fn uncounted(&mut self, message: i64) -> u32 {
        let uncounted = message - self.counted;
        self.counted = self.counted.max(message);
        clamped(uncounted)
    }
}

/// A number of messages as a number of turns.
pub(super) fn clamped(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

/// The number of the message before that of this client's own release. `last`: how many messages have arrived.
fn before_own_message(own: Option<NonZeroU32>, last: i64) -> i64 {
    // A number that is still far away is of an earlier subscription.
    let own = own
        .map(|own| i64::from(own.get()))
        .filter(|own| *own <= last + 1);
    own.unwrap_or(last) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_count_from_the_own_message_whether_or_not_it_has_arrived() {
        let counted = |last| before_own_message(NonZeroU32::new(8), last);
        assert_eq!([7, 8, 9, 10].map(counted), [7; 4]);
        assert_eq!(counted(3), 2, "an earlier subscription");
        assert_eq!(before_own_message(None, 8), 7);
    }
}

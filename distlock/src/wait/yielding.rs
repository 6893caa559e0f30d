//! Letting other processes go first after a release that they heard of.
//!
//! The first waiter of a queue lets those clients go first that have waited for longer than its own client. Clients of this
//! crate attempt as soon as they hear of a release, so it gives each of them one round trip, or less if one of them has the
//! key before. In that case the look counts as the refusal, and the waiter sends no attempt. A waiter with several clients
//! ahead of it does not look at once, because each of them publishes a message when its turn is over. See
//! [`local::round_robin`](crate::local).
//!
//! A Redisson client needs a few milliseconds more to wake a thread. If the key is still free, the waiter therefore looks at
//! it for a while, until somebody takes it. If nobody does, it does not do so again for some time, because
//! the pause costs clients of this crate throughput. Redisson releases each of its grants in the server, and this waiter
//! would win the race for the key each time. So Redisson clients that take the key get as many grants as the waiters of this
//! client had in their last turn, for each of those clients. These grants are counted by the messages of their releases.

use std::time::Duration;

use super::waiter::Waiter;
use crate::clock::Tick;
use crate::config::{FOREIGN_TURN, MOST_AHEAD, YIELD_LOOK, YIELD_TIME};
use crate::resource::kind::Family;
use crate::resource::owner;

/// Who has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Nobody,
    /// A client of this crate. It has the key for this long, unless it renews it; `None` if no end is known.
    Ours(Option<Duration>),
    /// A client of another library.
    Foreign,
    /// The server did not answer, or not in time.
    Unknown,
}

impl Waiter<'_> {
    /// Lets the processes go first that heard of the last release.
    pub(super) async fn yield_to_others(&mut self) {
        let until = self
            .session()
            .now()
            .after(YIELD_TIME)
            .min(self.request.deadline());
        let session = self.session();
        let was_active = self.is_active();
        if !self.requested().resource.kind.listens() {
            return session.clock.sleep_until(until).await;
        }
        if self.subscription.is_none() {
            self.subscribed();
            // The message of this client's own release is over, most likely. The turn after it is not counted yet.
            self.counted -= 1;
        }
        crate::sync::select! {
            () = self.subscribed().changed(was_active) => {}
            () = session.clock.sleep_until(until) => return,
        }
        self.let_pass(1, until).await;
    }

    /// After a release by another client. Lets the clients that have waited longer than this one go first.
    pub(super) async fn let_longer_waits_go_first(&mut self) {
        if self.turn.slot.clients_ahead() > 0 {
            let until = self
                .session()
                .now()
                .after(YIELD_TIME)
                .min(self.request.deadline());
            // Boxed: this happens only while other clients wait, and each waiter would have room for it.
            Box::pin(self.let_pass(0, until)).await;
        }
    }

    /// Lets the clients that have waited longer go first, at least this number of clients.
    async fn let_pass(&mut self, at_least: u32, mut until: Tick) {
        let resource = &self.requested().resource;
        let (heard, mut taker) = loop {
            let ahead = self.count_turns_ahead(&mut until).await.max(at_least);
            if ahead == 0 {
                return;
            }
            let heard = self.messages();
            let taker = self.look_for_each(ahead, until).await;
            // After a message that arrived meanwhile, it is the turn of another one, or of this client.
            if taker != Taker::Nobody || heard == self.messages() || !self.counts_turns() {
                break (heard, taker);
            }
        };
        if let Taker::Ours(ttl) = taker
            && self.is_refused_by_a_look()
        {
            self.is_taken = true;
            self.turn.blocking = self.blocked_by_owner(ttl);
            return;
        }
        // Only the hash of a lock tells who has it. A wait that is nearly over needs the rest of its time for its attempt.
        let latest = self.request.deadline().before(YIELD_TIME);
        if resource.kind.family() != Family::Lock || until >= latest {
            return;
        }
        if taker == Taker::Nobody && self.registry.may_wait_for_foreign(resource) {
            taker = self.wait_for_taker(until).await;
            if taker == Taker::Nobody {
                self.registry.nobody_took(resource);
            }
        }
        if taker == Taker::Foreign {
            self.leave_to_foreign(heard, latest).await;
        }
    }

    /// Whether each message ends a turn, so that a waiter can count turns without a look.
    fn counts_turns(&self) -> bool {
        self.requested().resource.kind.family() == Family::Lock
            && self.session().config.has_one_message_per_release()
            && self.turn.slot.has_turns_of_one_grant()
    }

    /// Counts the turns of others by their messages, until at most one client is ahead or nothing is heard. So a client that
    /// has many others ahead of it sends no command for each of their turns. Returns how many are still ahead.
    ///
    /// Those may go first until `until`, which is later after each message.
    async fn count_turns_ahead(&mut self, until: &mut Tick) -> u32 {
        if !self.counts_turns() {
            return self.turn.slot.clients_ahead();
        }
        loop {
            let heard = self.messages();
            // Whose turn follows the last message is not known yet.
            self.count_turns_before(heard - 1);
            let ahead = self.turn.slot.clients_ahead();
            if ahead <= 1 {
                return ahead;
            }
            let now = self.session().now();
            let pause = YIELD_LOOK.saturating_mul(ahead - 1);
            self.heard_before(now.after(pause).min(*until)).await;
            if self.messages() == heard {
                return ahead;
            }
            *until = self
                .session()
                .now()
                .after(YIELD_TIME)
                .min(self.request.deadline());
        }
    }

    /// Another client has the key now. Counts its turn, and those before it.
    pub(super) fn count_turns(&mut self) {
        if self.subscription.is_some() {
            let messages = self.messages();
            self.count_turns_before(messages);
        }
    }

    /// Counts the turns after the messages that have arrived, up to the one with this number.
    fn count_turns_before(&mut self, message: i64) {
        let turns = message - self.counted;
        if turns > 0 {
            self.counted = message;
            self.turn.slot.others_had_turns(clamped(turns));
        }
    }

    /// Whether a look that shows another owner counts as a refusal. This waiter then sleeps without an attempt. A release after
    /// the look wakes it, because the messages before the look are marked as seen and later ones are not.
    fn is_refused_by_a_look(&self) -> bool {
        let kind = self.requested().resource.kind;
        kind.family() == Family::Lock
            && !kind.has_places()
            && !self.request.has_several_keys()
            && !self.attempts.is_in_doubt()
            && self.is_active()
    }

    /// Looks once for each client that has waited longer, until one of them has the key.
    async fn look_for_each(&mut self, ahead: u32, until: Tick) -> Taker {
        for _ in 1..ahead.min(MOST_AHEAD) {
            match self.look_for_taker(until).await {
                Taker::Nobody => {}
                taker => return taker,
            }
        }
        self.look_for_taker(until).await
    }

    /// Looks until somebody has the key, but not beyond `until`.
    async fn wait_for_taker(&mut self, until: Tick) -> Taker {
        loop {
            let next = self.session().now().after(YIELD_LOOK).min(until);
            self.heard_before(next).await;
            match self.look_for_taker(until).await {
                Taker::Nobody if self.session().now() < until => {}
                taker => return taker,
            }
        }
    }

    /// Leaves the key to clients of another library, as long as they take it: until they had their turns, or had it for
    /// [`FOREIGN_TURN`]. `heard` is the number of messages that were there before.
    async fn leave_to_foreign(&mut self, mut heard: i64, latest: Tick) {
        let until = self.session().now().after(FOREIGN_TURN).min(latest);
        loop {
            self.heard_before(until).await;
            let messages = self.messages();
            let slot = &self.turn.slot;
            slot.others_granted(clamped(messages - heard));
            (heard, self.counted) = (messages, messages - 1);
            if slot.clients_ahead() == 0 {
                return;
            }
            let now = self.session().now();
            if now >= until {
                slot.other_had_turn();
                // A refusal of the next attempt is not one more turn.
                self.counted = messages;
                return;
            }
            let within = now.after(YIELD_TIME).min(until);
            if self.wait_for_taker(within).await != Taker::Foreign {
                return;
            }
        }
    }

    /// How many messages have arrived.
    fn messages(&mut self) -> i64 {
        self.subscribed().messages()
    }

    /// Completes with the next message, and at `until` at the latest.
    async fn heard_before(&mut self, until: Tick) {
        let session = self.session();
        let was_active = self.is_active();
        crate::sync::select! {
            () = self.subscribed().changed(was_active) => {}
            () = session.clock.sleep_until(until) => {}
        }
    }

    async fn look_for_taker(&mut self, until: Tick) -> Taker {
        // In the memory backend nothing of this takes time. The tasks that were woken run here.
        crate::sync::task::yield_now().await;
        self.subscribed().mark_seen();
        let session = self.session();
        let resource = &self.requested().resource;
        let inspected = crate::sync::select! {
            inspected = session.backend.inspect(resource) => inspected,
            () = session.clock.sleep_until(until) => return Taker::Unknown,
        };
        match inspected {
            Ok(inspected) if inspected.holders.is_empty() => Taker::Nobody,
            Ok(inspected) => {
                let mut names = inspected.holders.iter();
                if names.any(|(name, _)| owner::is_foreign(name)) {
                    Taker::Foreign
                } else {
                    Taker::Ours(inspected.ttl)
                }
            }
            Err(_) => Taker::Unknown,
        }
    }
}

fn clamped(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

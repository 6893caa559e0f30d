//! Letting other processes go first after a release that they heard of.
//!
//! The first waiter of a queue lets those clients go first that have waited for longer than its own client. Clients of this
//! crate attempt as soon as they hear of a release, so it gives each of them one round trip, or less if one of them has the
//! key before. See [`local::round_robin`](crate::local).
//!
//! A Redisson client needs a few milliseconds more to wake a thread. If the key is still free, the waiter therefore looks at
//! it for a while, until somebody takes it. If nobody does, it does not do so again for some time, because
//! the pause costs clients of this crate throughput. Redisson releases each of its grants in the server, and this waiter
//! would win the race for the key each time. So Redisson clients that take the key get as many grants as the waiters of this
//! client had in their last turn, for each of those clients. These grants are counted by the messages of their releases.

use super::Waiter;
use crate::clock::Tick;
use crate::config::{FOREIGN_TURN, MOST_AHEAD, YIELD_LOOK, YIELD_TIME};
use crate::kind::Family;
use crate::owner;

/// Who has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Nobody,
    /// A client of this crate.
    Ours,
    /// A client of another library.
    Foreign,
    /// The server did not answer, or not in time.
    Unknown,
}

impl Waiter<'_> {
    /// Lets the processes go first that heard of the last release.
    pub(super) async fn yield_to_others(&mut self) {
        let until = self.session.now().after(YIELD_TIME).min(self.deadline);
        let (session, was_active) = (self.session, self.is_active());
        if !self.requested().resource.kind.listens() {
            return session.clock.sleep_until(until).await;
        }
        tokio::select! {
            () = self.subscribed().changed(was_active) => {}
            () = session.clock.sleep_until(until) => return,
        }
        self.heard = true;
        let ahead = self.turn.slot.clients_ahead().max(1);
        self.let_pass(ahead, until).await;
    }

    /// After a release by another client. Lets the clients go first that have waited for longer than this one.
    pub(super) async fn let_longer_waits_go_first(&mut self) {
        self.heard = true;
        let ahead = self.turn.slot.clients_ahead();
        if ahead > 0 {
            let until = self.session.now().after(YIELD_TIME).min(self.deadline);
            Box::pin(self.let_pass(ahead, until)).await;
        }
    }

    /// Lets so many clients go first.
    async fn let_pass(&mut self, ahead: u32, until: Tick) {
        let resource = &self.requested().resource;
        let heard = self.messages();
        let mut taker = self.look_for_each(ahead, until).await;
        // Only the hash of a lock tells who has it. A wait that is nearly over needs the rest of its time for its attempt.
        let latest = self.deadline.before(YIELD_TIME);
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

    /// Looks once for each client that has waited for longer, until one of them has the key.
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
            let next = self.session.now().after(YIELD_LOOK).min(until);
            self.heard_before(next).await;
            match self.look_for_taker(until).await {
                Taker::Nobody if self.session.now() < until => {}
                taker => return taker,
            }
        }
    }

    /// Leaves the key to clients of another library, as long as they take it: until they had their turns, or had it for
    /// [`FOREIGN_TURN`]. `heard` is the number of messages that were there before.
    async fn leave_to_foreign(&mut self, mut heard: u64, latest: Tick) {
        let until = self.session.now().after(FOREIGN_TURN).min(latest);
        loop {
            self.heard_before(until).await;
            let messages = self.messages();
            let grants = messages.wrapping_sub(heard);
            heard = messages;
            let slot = &self.turn.slot;
            slot.others_granted(u32::try_from(grants).unwrap_or(u32::MAX));
            if slot.clients_ahead() == 0 {
                return;
            }
            let now = self.session.now();
            if now >= until {
                slot.other_had_turn();
                // A refusal of the next attempt is not one more turn.
                self.heard = false;
                return;
            }
            let within = now.after(YIELD_TIME).min(until);
            if self.wait_for_taker(within).await != Taker::Foreign {
                return;
            }
        }
    }

    /// How many messages have arrived.
    fn messages(&mut self) -> u64 {
        self.subscribed().state().messages
    }

    /// Completes with the next message, and at `until` at the latest.
    async fn heard_before(&mut self, until: Tick) {
        let session = self.session;
        let was_active = self.is_active();
        tokio::select! {
            () = self.subscribed().changed(was_active) => {}
            () = session.clock.sleep_until(until) => {}
        }
    }

    async fn look_for_taker(&mut self, until: Tick) -> Taker {
        // In the memory backend nothing of this takes time. The tasks that were woken run here.
        tokio::task::yield_now().await;
        self.subscribed().mark_seen();
        let session = self.session;
        let resource = &self.requested().resource;
        let inspected = tokio::select! {
            inspected = session.backend.inspect(resource) => inspected,
            () = session.clock.sleep_until(until) => return Taker::Unknown,
        };
        match inspected {
            Ok(inspected) if inspected.holders.is_empty() => Taker::Nobody,
            Ok(inspected) => {
                let mut names = inspected.holders.iter();
                match names.any(|(name, _)| owner::is_foreign(name)) {
                    true => Taker::Foreign,
                    false => Taker::Ours,
                }
            }
            Err(_) => Taker::Unknown,
        }
    }
}

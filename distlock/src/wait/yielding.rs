//! Letting other processes go first after a release that they heard of.
//!
//! The first waiter of a queue lets those clients go first that have waited for longer than its own client. Clients of this
//! crate attempt as soon as they hear of a release, so it gives each of them one round trip, or less if one of them has the
//! key before. In that case the peek counts as the refusal, and the waiter sends no attempt. A waiter with several clients
//! ahead of it does not peek at once, because each of them publishes a message when its turn is over. See
//! [`local::turns`](crate::local). If turns have several grants, a message ends a turn only if it comes from a client of this
//! crate, so a peek has to show now and then that those take the key.
//!
//! A Redisson client needs a few milliseconds more to wake a thread. If the key is still free, the waiter therefore peeks at
//! it for a while, until somebody takes it or a message tells that a client of this crate had it. If nobody takes it, the waiter
//! does not do so again for some time, because the pause costs clients of this crate throughput. Redisson releases each of its
//! grants in the server, and this waiter would win the race for the key each time. So Redisson clients that take the key get as
//! many grants as the waiters of this client had in their last turn, for each of those clients. These grants are counted by the
//! messages of their releases. So it is with plain locks and with the write lock, whose key readers may take as well: they end the
//! wait, and are not counted.

use std::sync::Arc;
use std::time::Duration;

use super::listener::{Listener, clamped};
use super::request::Request;
use super::waiter::Waiter;
use crate::clock::Tick;
use crate::config::{FOREIGN_TURN, MOST_AHEAD, SPIN_TURN, SPIN_TURN_ALONE, YIELD_PEEK, YIELD_TIME};
use crate::error::HeldBy;
use crate::local::{QueueSlot, Registry, RoundRobin};
use crate::resource::key::Resource;
use crate::resource::kind::{Family, Kind};
use crate::resource::owner;
use crate::session::{Looked, Session, look};

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

/// A client of this crate has the key, as a peek has shown.
struct Taken {
    /// How long, unless it renews its lease; `None` if no end is known.
    left: Option<Duration>,
}

impl Waiter<'_> {
    /// Lets the processes go first that heard of the last release.
    pub(super) async fn yield_to_others(&mut self) {
        if !self.requested().resource.kind.listens() {
            return self.leave_free().await;
        }
        let session = self.session();
        let until = until_yielded(session, self.request);
        let was_active = self.is_active();
        if self.listener.is_none() {
            let own_message = self.turn.slot.round_robin().own_message();
            self.listen().count_from_own_message(own_message);
        }
        crate::sync::select! {
            () = self.listen().changed(was_active) => {}
            () = session.clock.sleep_until(until) => return,
        }
        self.let_pass(1, until).await;
    }

    /// Leaves a key free whose waiters poll, at intervals and for their longest pause. Each waiter of another client with the same pauses
    /// attempts in this time.
    async fn leave_free(&mut self) {
        let (session, slot) = (self.session(), &self.turn.slot);
        let pause = self.poll_pause();
        let now = session.now();
        let alone = pause.saturating_mul(SPIN_TURN_ALONE);
        let is_due = slot.left_free_at(now.after(alone)) <= now;
        let pause = match is_due {
            true => pause,
            // Waiters of other kinds of lock heard of the release.
            false if slot.round_robin().ahead() > 0 => YIELD_TIME,
            false => return,
        };
        // A wait that is nearly over needs the rest of its time for its attempt.
        let latest = self.request.deadline().before(YIELD_TIME);
        let until = now.after(pause).min(latest);
        session.clock.sleep_until(until).await;
        if is_due {
            // In proportion to the time for which the key was left free.
            let alone = until.since(now).saturating_mul(SPIN_TURN_ALONE);
            slot.leave_free_at(session.now().after(alone));
        }
    }

    /// For how long a key is left free whose waiters poll. Each of them attempts in this time.
    fn poll_pause(&self) -> Duration {
        self.requested().backoff().longest.max(YIELD_TIME)
    }

    /// Records that a key whose waiters poll was refused: another client has its turn.
    pub(super) fn count_turn_of_pollers(&self) {
        let requested = self.requested();
        if !requested.resource.kind.listens() {
            let turn = self.poll_pause().saturating_mul(SPIN_TURN);
            let now = self.session().now();
            self.turn.slot.taken_before(now.after(turn));
        }
    }

    /// After a release by another client. Lets the clients that have waited longer than this one go first.
    pub(super) async fn let_longer_waits_go_first(&mut self) {
        if self.turn.slot.round_robin().ahead() > 0 {
            let until = until_yielded(self.session(), self.request);
            // Boxed: this happens only while other clients wait, and each waiter would have room for it.
            Box::pin(self.let_pass(0, until)).await;
        }
    }

    /// Notes a client of another library that a refusal names as the owner. Clients of this crate are not noted. If they were, no peek
    /// would be made that can show a Redisson client with very short holds.
    pub(super) fn saw_taker(&self, holder: Option<&HeldBy>) {
        let resource = &self.requested().resource;
        let owner = holder.and_then(|holder| holder.owner.as_deref());
        let is_foreign = owner.is_some_and(|owner| owner::is_foreign(owner.as_bytes()));
        // Most keys that are refused have no turns to count.
        if is_foreign
            && resource.kind.family() == Family::Lock
            && self.turn.slot.round_robin().takes_turns()
        {
            let now = self.session().now();
            let mut yielded = self.registry.yielded.lock();
            yielded.saw_taker(resource, true, now);
        }
    }

    /// Another client has the key now. Counts its turn, and those before it.
    pub(super) fn count_turns(&mut self) {
        let requested = self.requested();
        let slot = &self.turn.slot;
        let Some(listener) = &mut self.listener else {
            return;
        };
        if counts_turns(self.registry, &requested.resource, slot) {
            listener.count_whole_turns_before(listener.messages(), slot);
        } else {
            listener.count_turns(slot);
        }
    }

    /// Lets the clients that have waited longer go first, at least this number of clients.
    async fn let_pass(&mut self, at_least: u32, until: Tick) {
        let request = self.request;
        let registry = self.registry;
        self.listen();
        let Some(listener) = &mut self.listener else {
            return;
        };
        let mut yielding = Yielding {
            registry,
            request,
            resource: &request.requested[self.turn.at].resource,
            slot: &self.turn.slot,
            listener,
        };
        let taken = yielding.let_pass(at_least, until).await;
        if let Some(Taken { left }) = taken
            && self.is_refused_by_a_peek()
        {
            self.is_taken = true;
            self.turn.note_owner(left);
        }
    }

    /// Whether a peek that shows another owner counts as a refusal. This waiter then sleeps without an attempt. A release after
    /// the peek wakes it, because the messages before the peek are marked as seen and later ones are not.
    fn is_refused_by_a_peek(&self) -> bool {
        let kind = self.requested().resource.kind;
        kind.family() == Family::Lock
            && !kind.queues_in_server()
            && !self.request.has_several_keys()
            && !self.attempts.is_in_doubt()
            && self.is_active()
    }
}

/// Until when others may go first, from now on.
fn until_yielded(session: &Session, request: &Request) -> Tick {
    let most = session.now().after(YIELD_TIME);
    most.min(request.deadline())
}

fn takers_are_ours(registry: &Registry, resource: &Resource) -> bool {
    let now = registry.session.now();
    registry.yielded.lock().takers_are_ours(resource, now)
}

/// Whether each message ends a turn, so that a waiter can count turns without a peek.
fn counts_turns(registry: &Registry, resource: &Resource, slot: &QueueSlot<'_>) -> bool {
    resource.kind.family() == Family::Lock
        && registry.session.config.has_one_message_per_release()
        && (slot.round_robin().has_turns_of_one_grant() || takers_are_ours(registry, resource))
}

/// A waiter while it lets others go first: it reads who has the key, and sends no attempt.
struct Yielding<'w> {
    registry: &'w Arc<Registry>,
    request: &'w Request,
    resource: &'w Resource,
    slot: &'w QueueSlot<'w>,
    listener: &'w mut Listener,
}

impl Yielding<'_> {
    fn session(&self) -> &Arc<Session> {
        &self.registry.session
    }

    /// Lets the clients that have waited longer go first, at least this number of clients. Returns the one of this crate that has
    /// taken the key first.
    async fn let_pass(&mut self, mut at_least: u32, mut until: Tick) -> Option<Taken> {
        if self.has_heard_all() {
            self.registry.yielded.lock().all_take(self.resource);
        }
        // A wait that is nearly over needs the rest of its time for its attempt.
        let latest = self.request.deadline().before(YIELD_TIME);
        loop {
            if self.have_all_had_a_turn() {
                return None;
            }
            let ahead = self.count_turns_ahead(at_least, &mut until).await;
            if ahead == 0 {
                return None;
            }
            let heard = self.listener.messages();
            let is_heard = |listener: &Listener| listener.messages() != heard;
            let mut taker = self.peek_for_each(ahead, until).await;
            let mut is_next_turn = is_heard(self.listener) && self.counts_turns();
            let has_time = self.is_waited_for() && until < latest;
            if taker == Taker::Nobody && !is_next_turn && has_time && self.may_wait_for_foreign() {
                taker = self.wait_for_taker(heard, until).await;
                is_next_turn = is_heard(self.listener)
                    && (self.counts_turns_of_ours() || self.have_all_had_a_turn());
                // After a message somebody has had it, between two peeks: most peek at the moment of a release.
                if taker == Taker::Nobody && !is_heard(self.listener) {
                    let now = self.session().now();
                    let mut yielded = self.registry.yielded.lock();
                    yielded.nobody_took(self.resource, now);
                }
            }
            match taker {
                Taker::Ours(left) => return Some(Taken { left }),
                Taker::Foreign if has_time => self.leave_to_foreign(heard, latest).await,
                // It is the turn of another one now, or of this client.
                Taker::Nobody if is_next_turn => {
                    at_least = 0;
                    until = self.until_yielded();
                    continue;
                }
                Taker::Nobody | Taker::Foreign | Taker::Unknown => {}
            }
            return None;
        }
    }

    fn until_yielded(&self) -> Tick {
        until_yielded(self.session(), self.request)
    }

    /// Whether others get more than a round trip. Only a key that one owner has for itself shows that somebody has taken it.
    fn is_waited_for(&self) -> bool {
        let kind = self.resource.kind;
        kind.family() == Family::Lock || kind == Kind::Write
    }

    fn may_wait_for_foreign(&self) -> bool {
        let now = self.session().now();
        let mut yielded = self.registry.yielded.lock();
        yielded.may_wait_for_foreign(self.resource, now)
    }

    fn counts_turns(&self) -> bool {
        counts_turns(self.registry, self.resource, self.slot)
    }

    /// Whether as many messages came after this client's last release as others had heard of it.
    fn has_heard_all(&self) -> bool {
        let heard = self.listener.messages();
        self.slot.round_robin().have_all_had_a_turn(heard)
    }

    /// Whether nobody has waited longer: the others have had their turns since this client's last release.
    fn have_all_had_a_turn(&self) -> bool {
        self.counts_turns() && self.has_heard_all()
    }

    /// Whether each message ends a turn of a client of this crate.
    fn counts_turns_of_ours(&self) -> bool {
        self.counts_turns() && takers_are_ours(self.registry, self.resource)
    }

    /// Counts the turns of others by their messages, until nobody is ahead or nothing is heard. So a client that has others ahead
    /// of it sends no command for each of their turns. Returns how many are still ahead, `at_least` this number before a message.
    ///
    /// Those may go first until `until`, which is later after each message.
    async fn count_turns_ahead(&mut self, mut at_least: u32, until: &mut Tick) -> u32 {
        loop {
            if !self.counts_turns() {
                return self.slot.round_robin().ahead().max(at_least);
            }
            let heard = self.listener.messages();
            // Whose turn follows the last message is not known yet.
            self.listener.count_whole_turns_before(heard - 1, self.slot);
            let ahead = self.slot.round_robin().ahead().max(at_least);
            // The last one ahead may be of another library, which a peek finds out.
            if ahead == 0 || (ahead == 1 && !takers_are_ours(self.registry, self.resource)) {
                return ahead;
            }
            let now = self.session().now();
            let pause = YIELD_PEEK.saturating_mul(ahead.max(2) - 1);
            self.listener
                .changed_before(&self.registry.session.clock, now.after(pause).min(*until))
                .await;
            if self.listener.messages() == heard {
                return ahead;
            }
            at_least = 0;
            *until = self.until_yielded();
        }
    }

    /// Peeks once for each client that has waited longer, until one of them has the key.
    async fn peek_for_each(&mut self, ahead: u32, until: Tick) -> Taker {
        for _ in 1..ahead.min(MOST_AHEAD) {
            match self.peek_for_taker(until).await {
                Taker::Nobody => {}
                taker => return taker,
            }
        }
        self.peek_for_taker(until).await
    }

    /// Peeks until somebody has the key, but not beyond `until`. `heard` is the number of messages before. If all takers are clients of
    /// this crate, the next message ends the wait: one of them has had its turn between two peeks.
    async fn wait_for_taker(&mut self, heard: i64, until: Tick) -> Taker {
        loop {
            let next = self.session().now().after(YIELD_PEEK).min(until);
            self.listener
                .changed_before(&self.registry.session.clock, next)
                .await;
            let is_heard = self.listener.messages() != heard;
            if is_heard && (self.counts_turns_of_ours() || self.have_all_had_a_turn()) {
                return Taker::Nobody;
            }
            match self.peek_for_taker(until).await {
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
            self.listener
                .changed_before(&self.registry.session.clock, until)
                .await;
            let messages = self.listener.messages();
            let slot = self.slot;
            slot.with_round_robin(|count| count.others_granted(clamped(messages - heard)));
            heard = messages;
            self.listener.skip_turns(messages - 1);
            if slot.round_robin().ahead() == 0 {
                return;
            }
            let now = self.session().now();
            if now >= until {
                slot.with_round_robin(RoundRobin::other_had_turn);
                // A refusal of the next attempt is not one more turn.
                self.listener.skip_turns(messages);
                return;
            }
            let within = now.after(YIELD_TIME).min(until);
            if self.wait_for_taker(heard, within).await != Taker::Foreign {
                return;
            }
        }
    }

    async fn peek_for_taker(&mut self, until: Tick) -> Taker {
        // In the memory backend nothing of this takes time. The tasks that were woken run here.
        crate::sync::task::yield_now().await;
        self.listener.mark_seen();
        let session = self.session();
        let resource = self.resource;
        let looked = crate::sync::select! {
            looked = look(session, resource) => looked,
            // A server that does not answer must not cost more than the pause. The attempt that follows finds it out.
            () = session.clock.sleep_until(until) => return Taker::Unknown,
        };
        match looked {
            Ok(Looked::Free) => Taker::Nobody,
            // Readers have taken it, whoever they are.
            Ok(Looked::Held(inspected)) if inspected.holders.is_empty() => Taker::Unknown,
            Ok(Looked::Held(inspected)) => {
                let mut names = inspected.holders.iter();
                let is_foreign = names.any(|(name, _)| owner::is_foreign(name));
                let now = session.now();
                let mut yielded = self.registry.yielded.lock();
                yielded.saw_taker(resource, is_foreign, now);
                drop(yielded);
                if is_foreign {
                    Taker::Foreign
                } else {
                    Taker::Ours(inspected.ttl)
                }
            }
            Err(_) => Taker::Unknown,
        }
    }
}

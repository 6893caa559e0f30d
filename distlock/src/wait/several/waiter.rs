//! A waiter for several keys: a waiter for one of them, with slots in the queues of the others.

use std::sync::Arc;
use std::time::Duration;

use super::part::{KeysAskedFor, Part};
use super::position::{Rest, UnansweredBeside, WaitPosition};
use crate::clock::Tick;
use crate::config::OWN_HOLDER_TRUST;
use crate::error::Error;
use crate::hold::Hold;
use crate::local::{OpenShare, OpenShares, QueueSlot, Registry, SlotState, Ticket};
use crate::resource::owner::Owner;
use crate::session::Session;
use crate::sync::first;
use crate::wait::attempt::Outcome;
use crate::wait::refusal::Refusal;
use crate::wait::request::Request;
use crate::wait::turn::{Blocking, MyTurn};
use crate::wait::waiter::{AttemptEnd, Waiter};

/// The result of waiting in the queue of one key.
pub(super) enum RoundOutcome {
    All(OpenShares),
    /// The acquisition waits for another key next.
    Elsewhere(WaitPosition),
}

/// How long a hold that blocks the waiter is only being released. A release that takes long shows that the server may be gone.
pub(super) struct ReleaseWatch {
    limit: Duration,
    /// The owner of the hold that is being released.
    owner: Option<Owner>,
    until: Tick,
}

impl ReleaseWatch {
    /// `limit`: how long a release is waited for.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            owner: None,
            until: Tick::NEVER,
        }
    }

    /// Until when the waiter waits for this hold, which blocks it now, or for an unknown one.
    pub(super) fn until(&mut self, holder: Option<&Arc<Hold>>, now: Tick) -> Tick {
        let released = holder.filter(|holder| holder.count() == 0);
        let owner = released.map(|holder| holder.owner());
        // The release of another hold has a time of its own: that of the former one was answered.
        if owner != self.owner {
            self.owner = owner;
            self.until = owner.map_or(Tick::NEVER, |_| now.after(self.limit));
        }
        self.until
    }
}

/// A waiter in the queue of one key, with slots in the queues of the others.
pub(super) struct SeveralKeysWaiter<'a> {
    /// Waits for its turn, and makes the attempts. Dropped first: it has the owners ended before the slots wake others.
    pub(super) waiter: Waiter<'a>,
    /// Its slots in the queues of the other keys, by the index of the key, while it collects.
    pub(super) slots: Vec<(usize, QueueSlot<'a>)>,
    /// Its place in all queues. It keeps it if it has to give a granted key back.
    pub(super) rank: Option<Ticket>,
    pub(super) asked: KeysAskedFor,
    pub(super) unhindered_since: Tick,
    /// How often it collected and did not get all keys.
    pub(super) failed: u32,
    pub(super) unanswered: UnansweredBeside,
    pub(super) too_slow_for: Duration,
}

impl<'a> SeveralKeysWaiter<'a> {
    pub(super) fn join(
        registry: &'a Arc<Registry>,
        request: &'a Request,
        position: WaitPosition,
    ) -> Self {
        let WaitPosition {
            at,
            rank,
            waiter_slot,
            unhindered_since,
            failed,
            unanswered,
            too_slow_for,
            ..
        } = position;
        Self {
            waiter: Waiter::new(registry, request, at, rank, waiter_slot),
            slots: Vec::new(),
            rank: None,
            asked: KeysAskedFor::default(),
            unhindered_since,
            failed,
            unanswered,
            too_slow_for,
        }
    }

    pub(super) fn session(&self) -> &'a Arc<Session> {
        self.waiter.session()
    }

    pub(super) fn request(&self) -> &'a Request {
        self.waiter.request
    }

    /// The index of the key in whose queue it waits.
    pub(super) fn at(&self) -> usize {
        self.waiter.turn.at
    }

    /// Waits for its turn, and then until everything is granted or another key is refused.
    pub(super) async fn win(&mut self) -> Result<RoundOutcome, Error> {
        loop {
            let yield_first = match self.waiter.wait_for_turn().await? {
                // All keys are collected, so the hold of a single one is not handed over.
                MyTurn::HandedOver(_) => false,
                MyTurn::Attempt { yield_first, .. } => yield_first,
            };
            let interruption = self.waiter.interruption();
            // In this order: the interruption is looked at only while the server's answer is not there.
            let outcome = first(self.go_to_server(yield_first), interruption).await?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }

    async fn go_to_server(&mut self, yield_first: bool) -> Result<Option<RoundOutcome>, Error> {
        if yield_first {
            self.waiter.yield_to_others().await;
        }
        match self.waiter.turn.slot.state() {
            SlotState::Behind(holder) => self.watch_own_holder(&holder).await,
            _ => self.collect().await,
        }
    }

    /// Sends one attempt, at `sent`, on the keys that are asked for, its own among them. Sleeps if its own was not granted.
    pub(super) async fn ask_server(&mut self, sent: Tick) -> Result<Option<RoundOutcome>, Error> {
        let was_active = self.waiter.is_active();
        let outcome = match self.waiter.attempt(sent).await? {
            AttemptEnd::Outcome(outcome) => outcome,
            AttemptEnd::HandedOver(_) => return Ok(Some(self.elsewhere(self.at()))),
        };
        match outcome {
            Outcome::Granted(shares) => {
                for (position, share) in shares.iter().enumerate() {
                    self.granted_at(self.asked.index(position), share.hold());
                }
                Ok(Some(RoundOutcome::All(shares)))
            }
            Outcome::Held(Refusal { at, .. }) if self.asked.index(at) != self.at() => {
                Ok(Some(self.elsewhere(self.asked.index(at))))
            }
            outcome => {
                // Before it sleeps, so that it blocks nobody meanwhile.
                self.let_others_pass();
                let sleep = self.waiter.not_granted(outcome, sent, was_active).await?;
                if let Some(sleep) = sleep {
                    // Boxed, so that an attempt has no room for it.
                    Box::pin(self.waiter.sleep(sleep)).await;
                }
                Ok(None)
            }
        }
    }

    /// Waits behind a hold of its own client that lasts. An attempt would be refused because of that hold, so the server is
    /// asked for the hold itself: now, and each time a message shows that others use the key.
    ///
    /// A hold that is being released for longer than usual shows that the server may be gone. An attempt finds that out.
    async fn watch_own_holder(
        &mut self,
        holder: &Arc<Hold>,
    ) -> Result<Option<RoundOutcome>, Error> {
        self.waiter.turn.count_as_waiter()?;
        self.waiter.turn.blocking = Blocking::own_holder(holder);
        self.session().verify(holder);
        if !self.waiter.requested().resource.kind.listens() {
            self.waiter.back_off(None).await;
            return Ok(None);
        }
        let session = self.session();
        let deadline = self.request().deadline();
        let mut release = ReleaseWatch::new(OWN_HOLDER_TRUST);
        loop {
            // First: a change after the looks at the hold is not missed.
            let changed = holder.over.next_change();
            if holder.over.is_set() {
                return Ok(None);
            }
            self.waiter.turn.blocking = Blocking::own_holder(holder);
            let released_until = release.until(Some(holder), session.now());
            let was_active = self.waiter.is_active();
            self.waiter.listen();
            let slot = &self.waiter.turn.slot;
            let Some(listener) = &mut self.waiter.listener else {
                return Ok(None);
            };
            crate::sync::select! {
                // In this order: a hand-over and a change of the hold say more than a message.
                biased;
                () = slot.woken() => return Ok(None),
                () = changed => {}
                () = listener.changed(was_active) => {
                    listener.mark_seen();
                    session.verify(holder);
                }
                () = session.clock.sleep_until(deadline) => return Ok(None),
                () = session.clock.sleep_until(released_until) => return self.ask_alone().await,
            }
        }
    }

    /// Lets others pass in the queues of all keys but the one in whose queue it waits. Offers go on to them, or back to the
    /// server.
    pub(super) fn let_others_pass(&mut self) {
        self.slots.clear();
        self.waiter.turn.slot.refuse_offer();
        self.unhindered_since = self.session().now();
    }

    /// Prepares attempts on these keys. Those of the last time are used again if they were on the same keys.
    pub(super) fn ask_for(&mut self, keys: Part) {
        let request = self.request();
        let asked = KeysAskedFor::of(keys, request);
        if self.asked == asked {
            return;
        }
        let attempts = match asked.some() {
            None => request.attempts(self.waiter.registry, true),
            Some(asked) => {
                let asked = asked.iter().map(|at| &request.requested[*at]);
                request.attempts_on(asked, self.waiter.registry, true)
            }
        };
        self.waiter.replace_attempts(attempts);
        self.asked = asked;
    }

    /// The server granted the key with this index.
    pub(super) fn granted_at(&mut self, at: usize, hold: &Arc<Hold>) {
        let mut slots = self.slots.iter_mut();
        match slots.find(|(other, _)| *other == at) {
            Some((_, slot)) => slot.granted(hold, None),
            None => self.waiter.turn.slot.granted(hold, None),
        }
    }

    /// Takes all offers beside what the server granted. If one of them is gone, it gives everything back and returns that it
    /// has to wait again.
    pub(super) fn take_all(&mut self, mut all: Vec<(usize, OpenShare)>) -> Option<RoundOutcome> {
        let own = self.at();
        let others = self.slots.iter_mut().map(|(at, slot)| (*at, slot));
        for (at, slot) in others.chain([(own, &mut self.waiter.turn.slot)]) {
            if let Some(share) = slot.take_offer() {
                all.push((at, share));
            }
        }
        if all.len() == self.request().requested.len() {
            all.sort_unstable_by_key(|(at, _)| *at);
            let shares: OpenShares = all.into_iter().map(|(_, share)| share).collect();
            self.request().have_guards(&shares);
            return Some(RoundOutcome::All(shares));
        }
        // A key that was offered is gone. The others are given back, because nothing is held during a wait.
        drop(all);
        Some(self.elsewhere(self.at()))
    }

    /// Waits in the queue of this key next.
    pub(super) fn elsewhere(&mut self, at: usize) -> RoundOutcome {
        RoundOutcome::Elsewhere(self.position_elsewhere(at))
    }

    pub(super) fn position_elsewhere(&mut self, at: usize) -> WaitPosition {
        let now = self.session().now();
        WaitPosition {
            at,
            rank: self.waiter.turn.slot.ticket().or(self.rank),
            waiter_slot: self.waiter.turn.take_waiter_slot(),
            unhindered_since: now,
            failed: self.failed,
            rest: Rest::none(now),
            unanswered: self.unanswered,
            too_slow_for: self.too_slow_for,
        }
    }
}

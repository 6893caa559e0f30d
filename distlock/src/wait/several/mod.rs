//! How an acquisition waits for several keys of one client that are granted together.
//!
//! It has the same place in the queues of all its keys: before everything that came later. It *waits* in one of these
//! queues and blocks only that one. In the other queues, later waiters may overtake it. When it is first in that queue and the key is
//! free, it takes its places in the other queues and *collects*: holds that end are offered to it, or it finds keys
//! free. When nothing is missing that this client holds, it asks the server for the free keys and takes the offers. Keys in
//! several slots of a cluster are asked for [slot by slot](self::parts).
//!
//! # No deadlock, and nobody is kept waiting for long
//! * It holds nothing while it waits. While it collects, an offer lies in its slot for at most [`HAND_OVER_TIME`], until
//!   other holders of its own client end. After that the offered hold is released in the server.
//! * It collects for at most a third of the time in which it let the others pass before. If one of the keys is not free by
//!   then, it lets the others pass again and waits for that key. Those that need one key only lose at most a quarter of
//!   their time, however long the holders of other keys take.
//! * Keys that change hands in step could be missed in the same way each time. After
//!   [`COLLECTIONS_WITHOUT_REST`](crate::config::COLLECTIONS_WITHOUT_REST) failures it [rests](self::rest) before it waits
//!   again, twice as long each time. So it may collect for longer, until it is as long as the other keys are held. A rest is no
//!   longer than [`MOST_REST`](crate::config::MOST_REST), and ends when all keys are free.

pub(super) mod parts;
mod position;
mod rest;

use std::sync::Arc;

use smallvec::SmallVec;

use self::parts::Part;
use self::position::Rest;
pub(super) use self::position::WaitPosition;
use super::turn::Blocking;
use super::{RoundOutcome, Waiter};
use crate::clock::Tick;
use crate::config::{HAND_OVER_TIME, OWN_HOLDER_TRUST, WAIT_PER_COLLECTING};
use crate::error::Error;
use crate::hold::Hold;
use crate::local::{OpenShare, OpenShares, QueueSlot, SlotState, Ticket};

/// What an acquisition of several keys has beside its turn. Empty for one key.
pub(super) struct SeveralKeys {
    /// Its slots in the queues of the other keys, by the index of the key, while it collects.
    slots: Vec<(usize, QueueSlot)>,
    /// Its place in all queues. It keeps it if it has to give a granted key back.
    pub(super) rank: Option<Ticket>,
    /// The indices of the keys that the server is asked for; `None` is all of them.
    ///
    /// Boxed, because few waiters ask for some keys alone, and each would have room for them.
    asked: Option<Box<Part>>,
    unhindered_since: Tick,
    /// How often it collected in vain.
    pub(super) failed: u32,
    /// The key whose server did not answer when it was asked beside others, and since when.
    unanswered: Option<(usize, Tick)>,
}

/// What is known of the keys while an acquisition collects.
#[derive(Default)]
struct Overview {
    /// The first key that is not free, and the hold that is in the way if it is known.
    busy: Option<(usize, Option<Arc<Hold>>)>,
    /// A key that other processes have next.
    yields: Option<usize>,
    free: Part,
    offered: bool,
}

impl SeveralKeys {
    pub(super) fn new(position: &WaitPosition) -> Self {
        Self {
            slots: Vec::new(),
            rank: None,
            asked: None,
            unhindered_since: position.unhindered_since,
            failed: position.failed,
            unanswered: position.unanswered,
        }
    }

    /// The server of the key with this index did not answer an attempt that was sent at `sent`. Returns since when it has not.
    pub(super) fn unanswered_beside(&mut self, at: usize, sent: Tick) -> Tick {
        let earlier = self.unanswered.filter(|(other, _)| *other == at);
        let since = earlier.map_or(sent, |(_, since)| since);
        self.unanswered = Some((at, since));
        since
    }

    pub(super) fn answered_beside(&mut self, at: usize) {
        self.unanswered = self.unanswered.filter(|(other, _)| *other != at);
    }
}

impl Waiter<'_> {
    /// Waits behind a hold of its own client that lasts. An attempt would be refused because of that hold, so the server is
    /// asked for the hold itself: now, and each time a message shows that others use the key.
    ///
    /// A hold that is being released for longer than usual shows that the server may be gone. An attempt finds that out.
    pub(super) async fn watch_own_holder(
        &mut self,
        holder: &Arc<Hold>,
    ) -> Result<Option<RoundOutcome>, Error> {
        self.turn.count_as_waiter()?;
        self.turn.blocking = Blocking::own_holder(holder);
        self.session().verify(holder);
        if !self.requested().resource.kind.listens() {
            self.back_off(None).await;
            return Ok(None);
        }
        let deadline = self.request.deadline();
        let released_until = match self.turn.blocking {
            Blocking::Releasing(_) => self.session().now().after(OWN_HOLDER_TRUST),
            _ => Tick::NEVER,
        };
        loop {
            let was_active = self.is_active();
            self.subscribed();
            let (session, slot) = (self.session(), &self.turn.slot);
            let Some(subscription) = &mut self.subscription else {
                return Ok(None);
            };
            tokio::select! {
                biased;
                () = slot.woken() => return Ok(None),
                () = holder.over() => return Ok(None),
                () = subscription.changed(was_active) => {}
                () = session.clock.sleep_until(deadline) => return Ok(None),
                () = session.clock.sleep_until(released_until) => return self.ask_alone().await,
            }
            subscription.mark_seen();
            session.verify(holder);
        }
    }

    /// Collects all keys, and asks the server for those that were not offered.
    pub(super) async fn collect(&mut self) -> Result<Option<RoundOutcome>, Error> {
        if let Some(outcome) = self.probe().await? {
            return Ok(outcome);
        }
        self.take_places();
        let now = self.session().now();
        let unhindered = now.since(self.several.unhindered_since);
        let until = now.after(unhindered / WAIT_PER_COLLECTING);
        let until = until.min(self.request.deadline());
        let offers_until = now.after(HAND_OVER_TIME);
        let released_until = now.after(OWN_HOLDER_TRUST).min(self.request.deadline());
        // From then on the server is asked for a hold that is in the way, once.
        let mut trusted = now.after(OWN_HOLDER_TRUST);
        let free = loop {
            let overview = self.overview();
            if let Some(at) = overview.yields {
                return Ok(Some(self.elsewhere(at)));
            }
            let Some((at, holder)) = overview.busy else {
                break overview.free;
            };
            self.turn.blocking = match &holder {
                Some(holder) => Blocking::own_holder(holder),
                None => Blocking::Queue,
            };
            let now = self.session().now();
            // A hold that is only being released is soon out of the way, and nobody uses it.
            let latest = match self.turn.blocking {
                Blocking::Releasing(_) => until.max(released_until),
                _ => until,
            };
            if now >= latest {
                return Ok(Some(self.collected_in_vain(at, unhindered)));
            }
            if now >= offers_until {
                self.refuse_offers();
            }
            if now >= trusted {
                trusted = match &holder {
                    Some(holder) => {
                        self.session().verify(holder);
                        Tick::NEVER
                    }
                    None => now.after(OWN_HOLDER_TRUST),
                };
            }
            let next = match overview.offered && now < offers_until {
                true => latest.min(offers_until),
                false => latest,
            };
            let over = async {
                match &holder {
                    Some(holder) => holder.over().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.turn.slot.woken() => {}
                () = over => {}
                () = self.session().clock.sleep_until(next.min(trusted)) => {}
            }
        };
        self.ask_for_parts(free).await
    }

    /// Takes its places in the queues of the other keys.
    fn take_places(&mut self) {
        let (request, slot) = (self.request, &self.turn.slot);
        self.several.rank = slot.ticket();
        let others = (0..request.requested.len()).filter(|at| *at != self.at());
        let slot_of = |at| (at, slot.slot_beside(request.joining(at, true)));
        self.several.slots = others.map(slot_of).collect();
    }

    /// Lets others pass in the queues of all keys but the one in whose queue it waits. Offers go on to them, or back to the
    /// server.
    pub(super) fn let_others_pass(&mut self) {
        if self.request.has_several_keys() {
            self.several.slots.clear();
            self.turn.slot.refuse_offer();
            self.several.unhindered_since = self.session().now();
        }
    }

    fn refuse_offers(&self) {
        self.turn.slot.refuse_offer();
        for (_, slot) in &self.several.slots {
            slot.refuse_offer();
        }
    }

    fn overview(&self) -> Overview {
        let mut overview = Overview::default();
        let others = self.several.slots.iter().map(|(at, slot)| (*at, slot));
        let mut slots: SmallVec<[_; 4]> = others.collect();
        slots.push((self.at(), &self.turn.slot));
        slots.sort_unstable_by_key(|(at, _)| *at);
        for (at, slot) in slots {
            match slot.state() {
                SlotState::InLine => overview.busy = overview.busy.or(Some((at, None))),
                SlotState::Behind(hold) => {
                    overview.busy = overview.busy.or(Some((at, Some(hold))));
                }
                SlotState::Offered => overview.offered = true,
                SlotState::Free { yields } => {
                    if yields && at != self.at() {
                        overview.yields = Some(at);
                    }
                    overview.free.push(at);
                }
            }
        }
        overview
    }

    /// Prepares attempts on these keys. Those of the last time are used again if they were on the same keys.
    pub(super) fn ask_for(&mut self, keys: Part) {
        let asked = (keys.len() < self.request.requested.len()).then(|| Box::new(keys));
        if self.several.asked != asked {
            self.several.asked = asked;
            self.renew_attempts();
        }
    }

    /// Makes attempts with new owners on the keys that are asked for. Those before are ended, if they are in doubt.
    pub(super) fn renew_attempts(&mut self) {
        let requested = &self.request.requested;
        self.attempts = match &self.several.asked {
            None => self.request.attempts(self.registry, true),
            Some(asked) => {
                let asked = asked.iter().map(|at| &requested[*at]);
                self.request.attempts_on(asked, self.registry, true)
            }
        };
        // A waiter that the server knows by its owner listens to a channel of that owner, so a new owner needs a new
        // subscription.
        self.subscription = None;
    }

    /// The index in the request of the key with this index among those that the server is asked for.
    pub(super) fn asked(&self, at: usize) -> usize {
        let asked = self.several.asked.as_ref();
        asked.map_or(at, |asked| asked[at])
    }

    /// Records what the server granted.
    pub(super) fn granted(&mut self, shares: &OpenShares) {
        for (position, share) in shares.iter().enumerate() {
            self.granted_at(self.asked(position), share.hold());
        }
    }

    /// The server granted the key with this index.
    pub(super) fn granted_at(&mut self, at: usize, hold: &Arc<Hold>) {
        let mut slots = self.several.slots.iter_mut();
        match slots.find(|(other, _)| *other == at) {
            Some((_, slot)) => slot.granted(hold),
            None => self.turn.slot.granted(hold),
        }
    }

    /// Takes all offers beside what the server granted. If one of them is gone, it gives everything back and returns that it
    /// has to wait again.
    pub(super) fn take_all(&mut self, mut all: Vec<(usize, OpenShare)>) -> Option<RoundOutcome> {
        let own = self.at();
        let others = self.several.slots.iter_mut().map(|(at, slot)| (*at, slot));
        for (at, slot) in others.chain([(own, &mut self.turn.slot)]) {
            if let Some(share) = slot.take_offer() {
                all.push((at, share));
            }
        }
        if all.len() == self.request.requested.len() {
            all.sort_unstable_by_key(|(at, _)| *at);
            let shares: OpenShares = all.into_iter().map(|(_, share)| share).collect();
            self.request.have_guards(&shares);
            return Some(RoundOutcome::All(shares));
        }
        drop(all);
        Some(self.elsewhere(self.at()))
    }

    /// Waits in the queue of this key next.
    pub(super) fn elsewhere(&mut self, at: usize) -> RoundOutcome {
        RoundOutcome::Elsewhere(Box::new(self.position_elsewhere(at)))
    }

    pub(super) fn position_elsewhere(&mut self, at: usize) -> WaitPosition {
        let now = self.session().now();
        WaitPosition {
            at,
            rank: self.turn.slot.ticket().or(self.several.rank),
            waiter_slot: self.turn.take_waiter_slot(),
            unhindered_since: now,
            failed: self.several.failed,
            rest: Rest::none(now),
            unanswered: self.several.unanswered,
        }
    }
}

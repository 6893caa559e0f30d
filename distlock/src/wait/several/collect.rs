//! A waiter that is first in line collects all its keys: it takes its slots in the other queues, and waits for a moment in which
//! nobody of its client is in its way.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use smallvec::SmallVec;

use super::part::Part;
use super::waiter::{ReleaseWatch, RoundOutcome, SeveralKeysWaiter};
use crate::clock::Tick;
use crate::config::{HAND_OVER_TIME, OWN_HOLDER_TRUST, WAIT_PER_COLLECTING};
use crate::error::Error;
use crate::hold::Hold;
use crate::local::SlotState;
use crate::sync::Change;
use crate::wait::turn::Blocking;

/// What is known of the keys while an acquisition collects.
#[derive(Default)]
struct Overview {
    /// The first key that is not free, and the hold that is in the way if it is known.
    busy: Option<(usize, Option<Arc<Hold>>)>,
    /// A key that other processes have next.
    yields: Option<usize>,
    free: Part,
    offered: bool,
    /// It was not polled for too long, and is in no queue any more. Nobody wakes it then.
    has_lost_its_place: bool,
}

/// The times of an acquisition that collects.
struct Times {
    /// For how long it has let the others pass before.
    unhindered: Duration,
    /// Until then it collects.
    until: Tick,
    /// Until then an offer lies in its slot.
    offers_until: Tick,
    /// Until then it waits for a hold that is only being released.
    released_until: Tick,
    /// From then on the server is asked for a hold that is in the way, once.
    trusted: Tick,
    /// Ends the wait for a release that is not answered.
    release: ReleaseWatch,
}

/// Whether an acquisition goes on collecting.
enum Collecting {
    GoesOn,
    /// A key was not free in time.
    InVain,
    /// The release of a hold takes so long that its server may be gone.
    Stuck,
}

impl SeveralKeysWaiter<'_> {
    /// Collects all keys, and asks the server for those that were not offered.
    pub(super) async fn collect(&mut self) -> Result<Option<RoundOutcome>, Error> {
        if let Some(outcome) = self.probe().await? {
            return Ok(outcome);
        }
        self.join_other_queues();
        let mut times = None;
        loop {
            let overview = self.overview();
            if overview.has_lost_its_place {
                // Its turn begins anew, at the end of the queue. The time for which it was not polled gives it no share.
                self.let_others_pass();
                return Ok(None);
            }
            if let Some(at) = overview.yields {
                return Ok(Some(self.elsewhere(at)));
            }
            let Some((at, holder)) = overview.busy else {
                return self.ask_for_parts(overview.free).await;
            };
            let offered = overview.offered;
            // From here on: usually nothing is in the way, and the clock is not read.
            let times = times.get_or_insert_with(|| self.times());
            match self.waited(holder.as_ref(), offered, times).await {
                Collecting::GoesOn => {}
                Collecting::InVain => {
                    return Ok(Some(self.collected_in_vain(at, times.unhindered)));
                }
                // In the queue of that key it asks the server, and pauses while that does not answer.
                Collecting::Stuck => return Ok(Some(self.elsewhere(at))),
            }
        }
    }

    /// The times of an acquisition that begins to collect now, and has found a key that is not free.
    fn times(&self) -> Times {
        let now = self.session().now();
        let unhindered = now.since(self.unhindered_since);
        let deadline = self.request().deadline();
        Times {
            unhindered,
            until: now.after(unhindered / WAIT_PER_COLLECTING).min(deadline),
            offers_until: now.after(HAND_OVER_TIME),
            released_until: now.after(OWN_HOLDER_TRUST).min(deadline),
            trusted: now.after(OWN_HOLDER_TRUST),
            // Not sooner, as in its own queue: it would lose its turn in the other queues, and a distant server may take so long.
            release: ReleaseWatch::new(self.session().config.response_timeout),
        }
    }

    /// Waits until something may have changed about a key that is not free. `holder`: the hold that is in the way, if it is
    /// known. `offered`: there is an offer of another key.
    async fn waited(
        &mut self,
        holder: Option<&Arc<Hold>>,
        offered: bool,
        times: &mut Times,
    ) -> Collecting {
        // First: a change after the looks at the hold is not missed.
        let changed = holder.map(|holder| holder.over.next_change());
        if holder.is_some_and(|holder| holder.over.is_set()) {
            return Collecting::GoesOn;
        }
        self.waiter.turn.blocking = match holder {
            Some(holder) => Blocking::own_holder(holder),
            None => Blocking::Queue(None),
        };
        let now = self.session().now();
        // A hold that is only being released is soon out of the way, and nobody uses it.
        let latest = match self.waiter.turn.blocking {
            Blocking::Releasing(_) => times.until.max(times.released_until),
            _ => times.until,
        };
        if now >= latest {
            return Collecting::InVain;
        }
        let stuck = times.release.until(holder, now);
        if now >= stuck {
            return Collecting::Stuck;
        }
        if now >= times.offers_until {
            self.refuse_offers();
        }
        if now >= times.trusted {
            times.trusted = self.stop_trusting(holder, now);
        }
        let next = if offered && now < times.offers_until {
            latest.min(times.offers_until)
        } else {
            latest
        };
        let next = next.min(times.trusted).min(stuck);
        self.woken_or_changed(changed, next).await;
        Collecting::GoesOn
    }

    /// Asks the server about the hold that blocks it. Returns when to ask next: once is enough for a hold that is known.
    fn stop_trusting(&self, holder: Option<&Arc<Hold>>, now: Tick) -> Tick {
        match holder {
            Some(holder) => {
                self.session().verify(holder);
                Tick::NEVER
            }
            None => now.after(OWN_HOLDER_TRUST),
        }
    }

    /// Completes when something changes in one of the queues, or about the blocking hold, or at `until`.
    async fn woken_or_changed(&self, changed: Option<Change<'_>>, until: Tick) {
        crate::sync::select! {
            // In this order: what the queue says counts, even if the time is over.
            biased;
            () = self.waiter.turn.slot.woken() => {}
            Some(()) = OptionFuture::from(changed) => {}
            () = self.session().clock.sleep_until(until) => {}
        }
    }

    /// Takes its slots in the queues of the other keys, each at the same place as in this one.
    fn join_other_queues(&mut self) {
        let request = self.request();
        let slot = &self.waiter.turn.slot;
        self.rank = slot.ticket();
        let others = (0..request.requested.len()).filter(|at| *at != self.at());
        let slot_of = |at| (at, slot.slot_beside(request.joining(at, true)));
        self.slots = others.map(slot_of).collect();
    }

    fn refuse_offers(&self) {
        self.waiter.turn.slot.refuse_offer();
        for (_, slot) in &self.slots {
            slot.refuse_offer();
        }
    }

    fn overview(&self) -> Overview {
        let mut overview = Overview::default();
        let others = self.slots.iter().map(|(at, slot)| (*at, slot));
        let mut slots: SmallVec<[_; 4]> = others.collect();
        slots.push((self.at(), &self.waiter.turn.slot));
        // In the order of the request, in which `parts` divides the keys.
        slots.sort_unstable_by_key(|(at, _)| *at);
        for (at, slot) in slots {
            match slot.state() {
                SlotState::Lost => overview.has_lost_its_place = true,
                SlotState::InLine => overview.busy = overview.busy.or(Some((at, None))),
                SlotState::Behind(hold) => {
                    overview.busy = overview.busy.or(Some((at, Some(hold))));
                }
                SlotState::Offered => overview.offered = true,
                SlotState::Free { yields } => {
                    // In its own queue it has let them go first already.
                    if yields && at != self.at() {
                        overview.yields = Some(at);
                    }
                    overview.free.push(at);
                }
            }
        }
        overview
    }
}

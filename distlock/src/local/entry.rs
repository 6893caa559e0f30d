//! One key that has waiters or a holder in this client.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::queue::Queue;
use super::turns::RoundRobin;
use super::waits::runner::Runner;
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::hold::Hold;
use crate::resource::key::Resource;
use crate::sync::table;

/// The keys that have waiters or a holder in this client.
pub(super) type Entries = HashMap<Resource, Entry, RandomState>;

/// Removes the entry of a key that has neither a waiter nor a holder.
pub(super) fn remove(entries: &mut Entries, resource: &Resource) {
    entries.remove(resource);
    table::shrink(entries);
}

/// One key that has waiters or a holder in this client. Small, because up to half of the slots of a table are empty.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) holder: Option<LocalHolder>,
    /// Boxed, because most keys are held and nobody waits. See [`forget_waiters`](Entry::forget_waiters).
    waiters: Option<Box<KeyWaiters>>,
}

/// The queue of a key, and what its waiters know together.
#[derive(Debug)]
pub(super) struct KeyWaiters {
    pub(super) queue: Queue<Arc<Hold>, Arc<SlotWaker>>,
    /// Other processes heard of the last release: the next head of the queue lets them go first.
    pub(super) yield_first: bool,
    /// The other clients that wait for the key. While this client has it, only the number of the message of its release.
    pub(super) round_robin: RoundRobin,
    /// When the first waiter leaves a key free whose waiters poll. `NEVER` if no release had a waiter behind it yet.
    pub(super) left_free_at: Tick,
    /// Whether its first waiter is checked at intervals.
    pub(super) is_checked: bool,
    /// When a head of the queue gave up because the server does not answer. `NEVER` if none did.
    pub(super) given_up_at: Tick,
    /// When the lease of the holder ends, by the server's last answer to the head of the queue. `NEVER` if no end is known.
    pub(super) busy_until: Tick,
    /// That holder, as the server named it when it last refused. Boxed, because most keys are not contended.
    pub(super) busy_by: Option<Box<HeldBy>>,
    /// Whether the server's last answer to a waiter was a refusal.
    pub(super) is_refused: bool,
    /// How often the server has answered the waiters.
    pub(super) answers: u32,
}

/// The hold that a guard of this client has, or had until its release is answered.
#[derive(Debug)]
pub(super) struct LocalHolder {
    pub(super) hold: Arc<Hold>,
    pub(super) runner: Option<Runner>,
}

impl KeyWaiters {
    /// Those of a key that has had none. If it has a holder, the run of hand-overs has begun with the grant of that hold.
    fn behind(holder: Option<&LocalHolder>) -> Self {
        let mut queue = Queue::new();
        if let Some(holder) = holder {
            // Nothing is in the slot of a new queue.
            let _nothing = queue.began(holder.hold.latest_guard().since);
        }
        Self {
            queue,
            yield_first: false,
            round_robin: RoundRobin::default(),
            left_free_at: Tick::NEVER,
            is_checked: false,
            given_up_at: Tick::NEVER,
            busy_until: Tick::NEVER,
            busy_by: None,
            is_refused: false,
            answers: 0,
        }
    }

    /// Whether nothing is known here that [`behind`](KeyWaiters::behind) does not know.
    fn is_new(&self) -> bool {
        self.queue.is_new()
            && !self.yield_first
            && self.round_robin == RoundRobin::default()
            && self.left_free_at == Tick::NEVER
            && !self.is_checked
            && self.given_up_at == Tick::NEVER
            && self.busy_until == Tick::NEVER
            && self.busy_by.is_none()
            && !self.is_refused
    }

    /// The server has answered a waiter.
    pub(super) fn note_answer(&mut self, is_refused: bool) {
        self.is_refused = is_refused;
        // Wrapping: the waiters compare it with what it was.
        self.answers = self.answers.wrapping_add(1);
    }

    /// The client has released the key, and others may have heard of it.
    pub(super) fn yield_to(&mut self, others: RoundRobin) {
        // A rule of tests/model: others_go_first_after_a_release.
        self.yield_first = others.ahead() > 0;
        self.round_robin = others;
    }
}

impl Entry {
    /// The waiters, if there is anything to know of them.
    pub(super) fn waiters(&self) -> Option<&KeyWaiters> {
        self.waiters.as_deref()
    }

    /// The waiters, also if there is nothing to know of them yet.
    pub(super) fn waiters_mut(&mut self) -> &mut KeyWaiters {
        let holder = self.holder.as_ref();
        self.waiters
            .get_or_insert_with(|| Box::new(KeyWaiters::behind(holder)))
    }

    /// Gives the memory for waiters back if there are none and nothing is known that a later one has to know. A hold that was just
    /// granted is kept like this.
    pub(super) fn forget_waiters(&mut self) {
        if self.waiters().is_some_and(KeyWaiters::is_new) {
            self.waiters = None;
        }
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.waiters()
            .is_some_and(|waiters| !waiters.queue.is_empty())
    }

    pub(super) fn is_held_by(&self, hold: &Hold) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.hold.owner() == hold.owner())
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.has_waiters() && self.holder.is_none()
    }

    /// The backend granted a hold at `now`. Returns a hold that was in the slot, as [`Queue::began`] does.
    #[must_use]
    pub(super) fn began(&mut self, now: Tick) -> Option<Arc<Hold>> {
        self.waiters.as_mut()?.queue.began(now)
    }

    /// Takes the hold of a dropped guard back, if its release has not begun and the run of hand-overs goes on.
    pub(super) fn take_back(&mut self, now: impl FnOnce() -> Tick) -> Option<Arc<Hold>> {
        let hold = &self.holder.as_ref()?.hold;
        // Before `now`: the clock is read only if there is something to take back.
        if !hold.is_waiting_for_release() {
            return None;
        }
        let hold = Arc::clone(hold);
        let now = now();
        let queue = &mut self.waiters_mut().queue;
        (queue.run.goes_on(now) && hold.take_back(now)).then(|| {
            queue.run.count_grant();
            hold
        })
    }

    /// `own_message`: which message of the key's channel that of the release will be, if the client knows. While it has the key, nobody
    /// else publishes a release.
    ///
    /// Returns the former holder if that is another hold. The grant shows that the server does not have it any more.
    #[must_use]
    pub(super) fn set_holder(
        &mut self,
        hold: &Arc<Hold>,
        own_message: Option<NonZeroU32>,
    ) -> Option<Arc<Hold>> {
        if self.waiters.is_some() || own_message.is_some() {
            let waiters = self.waiters_mut();
            waiters.yield_to(RoundRobin::holding(own_message));
            // The owner that was in the way has released the key.
            (waiters.busy_until, waiters.busy_by) = (Tick::NEVER, None);
            waiters.note_answer(false);
        }
        let former = self.holder.replace(LocalHolder {
            hold: Arc::clone(hold),
            runner: Runner::current(),
        });
        let former = former.map(|former| former.hold);
        former.filter(|former| former.owner() != hold.owner())
    }
}

//! One key that has waiters or a holder in this client.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::queue::Queue;
use super::round_robin::RoundRobin;
use super::waits::runner::Runner;
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::error::HeldBy;
use crate::hold::Hold;
use crate::resource::key::Resource;

/// The keys that have waiters or a holder in this client. Boxed, because up to half of the slots of a table are empty, and an
/// entry is large.
pub(super) type Entries = HashMap<Resource, Box<Entry>, RandomState>;

/// One key that has waiters or a holder in this client.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Queue<Arc<Hold>, Arc<SlotWaker>>,
    pub(super) holder: Option<LocalHolder>,
    /// Other processes heard of the last release: the next head of the queue lets them go first.
    pub(super) yield_first: bool,
    /// The other clients that wait for the key. While this client has it, only the number of the message of its release.
    pub(super) round_robin: RoundRobin,
    /// Whether its first waiter is checked at intervals.
    pub(super) is_checked: bool,
    /// When a head of the queue gave up because the server does not answer.
    pub(super) given_up_at: Option<Tick>,
    /// When the lease of the holder ends, by the server's last answer to the head of the queue.
    pub(super) busy_until: Option<Tick>,
    /// That holder, as the server named it when it last refused. Boxed, because most keys are not contended.
    pub(super) busy_by: Option<Box<HeldBy>>,
}

/// The hold that a guard of this client has, or had until its release is answered.
#[derive(Debug)]
pub(super) struct LocalHolder {
    pub(super) hold: Arc<Hold>,
    pub(super) runner: Option<Runner>,
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            queue: Queue::new(),
            holder: None,
            yield_first: false,
            round_robin: RoundRobin::default(),
            is_checked: false,
            given_up_at: None,
            busy_until: None,
            busy_by: None,
        }
    }

    pub(super) fn is_held_by(&self, hold: &Hold) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.hold.owner == hold.owner)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.holder.is_none()
    }

    /// The client has released the key, and others may have heard of it.
    pub(super) fn yield_to(&mut self, others: RoundRobin) {
        // A rule of tests/model: others_go_first_after_a_release.
        self.yield_first = others.ahead() > 0;
        self.round_robin = others;
    }

    /// Takes the hold of a dropped guard back, if its release has not begun and the run of hand-overs goes on.
    pub(super) fn take_back(&mut self, now: impl FnOnce() -> Tick) -> Option<Arc<Hold>> {
        let hold = &self.holder.as_ref()?.hold;
        // Before `now`: the clock is read only if there is something to take back.
        if !hold.is_waiting_for_release() {
            return None;
        }
        let now = now();
        (self.queue.run_goes_on(now) && hold.take_back(now)).then(|| {
            self.queue.count_grant();
            Arc::clone(hold)
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
        self.yield_to(RoundRobin::holding(own_message));
        // The owner that was in the way has released the key.
        (self.busy_until, self.busy_by) = (None, None);
        let former = self.holder.replace(LocalHolder {
            hold: Arc::clone(hold),
            runner: Runner::current(),
        });
        let former = former.map(|former| former.hold);
        former.filter(|former| former.owner != hold.owner)
    }
}

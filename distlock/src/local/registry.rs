//! The keys that this client holds or waits for, each with its queue and its local holder.
//!
//! # Invariants
//! 1. An entry is there while a local waiter or a local holder of its key is, and no longer.
//! 2. The mutex here is taken before any hold's, is held for a few lines and never while waking or sending.
//! 3. A hold in a slot is still the entry's holder: whoever leaves last has it released, and the entry goes with it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task;

use super::limits::{WaiterLimits, WaiterSlot};
use super::queue::{Queue, QueueEffect};
use super::slot::QueueSlot;
use super::yielding::YieldList;
use crate::backend::Released;
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{GuardEnd, Hold, HoldRef, PendingRelease, Session, Settled};
use crate::key::Resource;
use crate::kind::Line;
use crate::wait::Request;

/// What one client waits for and holds. The last handle to it ends the client's tasks.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) session: Arc<Session>,
    pub(super) entries: Mutex<HashMap<Resource, Entry, RandomState>>,
    yielding: Mutex<YieldList<Resource>>,
    limits: Arc<WaiterLimits>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Queue<Arc<Hold>, Arc<Notify>>,
    pub(super) holder: Option<LocalHolder>,
    /// Other processes heard of the last release: the next head lets them go first.
    pub(super) yield_first: bool,
}

#[derive(Debug)]
pub(super) struct LocalHolder {
    pub(super) hold: Arc<Hold>,
    task: Option<task::Id>,
}

/// How a guard's part ended.
#[derive(Debug)]
pub(crate) enum EndOutcome {
    /// Nothing has to be sent.
    Done,
    /// The hold is to be released in the server.
    Release(PendingRelease),
    /// It was gone before.
    Lost(Loss),
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            queue: Queue::new(),
            holder: None,
            yield_first: false,
        }
    }

    fn is_held_by(&self, hold: &Hold) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.hold.owner == hold.owner)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.holder.is_none()
    }

    pub(super) fn set_holder(&mut self, hold: &Arc<Hold>) {
        self.yield_first = false;
        self.holder = Some(LocalHolder {
            hold: Arc::clone(hold),
            task: task::try_id(),
        });
    }
}

impl Registry {
    pub(crate) fn new(session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self {
            session,
            entries: Mutex::default(),
            yielding: Mutex::default(),
            limits: Arc::default(),
        })
    }

    /// An acquisition has to wait, and counts as a waiter from here on; `first`: others wait behind it already, and not
    /// it is one too many.
    ///
    /// # Errors
    /// [`Error::Overloaded`] where as many wait already as it bears.
    pub(crate) fn count_as_waiter(
        &self,
        request: &Request,
        at: usize,
        first: bool,
    ) -> Result<WaiterSlot, Error> {
        let key = &request.requested[at].resource.key;
        if first {
            return Ok(self.limits.join_as_first(key));
        }
        let joined = self.limits.join(key, request.max_waiters);
        joined.map_err(|waiters| Error::Overloaded {
            key: key.text().to_owned(),
            waiters,
        })
    }

    /// Takes a place: the last one in the queue of a key, or one beside it. A waiter with a lease of its own is handed no
    /// hold of the watchdog's, nor is one that wants more than that hold.
    pub(crate) fn join(
        self: &Arc<Self>,
        request: &Request,
        at: usize,
        takes_over: bool,
    ) -> QueueSlot {
        let line = request.requested[at].resource.kind.line();
        let mut slot = QueueSlot::new(self, request, at, takes_over);
        let in_line = slot.lines_up && (line == Line::Local || self.has_line(&slot.resource));
        if in_line {
            let yield_first = self.yielding.lock().take(&slot.resource, request.since);
            slot.join_queue(yield_first);
        }
        slot
    }

    /// Does anyone stand in line for a key?
    fn has_line(&self, resource: &Resource) -> bool {
        let entries = self.entries.lock();
        entries
            .get(resource)
            .is_some_and(|entry| !entry.queue.is_empty())
    }

    /// Does the running task hold the key already?
    pub(crate) fn is_held_by_this_task(&self, resource: &Resource) -> bool {
        let entries = self.entries.lock();
        let holder = entries
            .get(resource)
            .and_then(|entry| entry.holder.as_ref());
        holder.is_some_and(|holder| holder.task.is_some() && holder.task == task::try_id())
    }

    /// A hold that was granted to one that did not queue.
    pub(crate) fn granted(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.session.watch(hold);
        if hold.resource.kind.line() == Line::Shared {
            return;
        }
        let now = self.session.now();
        let left_over = {
            let mut entries = self.entries.lock();
            let entry = entries
                .entry(hold.resource.clone())
                .or_insert_with(Entry::new);
            entry.set_holder(hold);
            entry.queue.began(now)
        };
        if let Some(left_over) = left_over {
            self.give_back(&left_over);
        }
    }

    /// A guard ends: its hold goes on with other guards or the next local waiter, or is to be released.
    pub(crate) fn end(self: &Arc<Self>, hold_ref: &HoldRef) -> EndOutcome {
        let now = self.session.now();
        let hold = hold_ref.hold();
        let (ended, then) = {
            let mut entries = self.entries.lock();
            let ended = hold_ref.finish(now);
            let then = match (ended, entries.get_mut(&hold.resource)) {
                (GuardEnd::Last { may_pass_on }, Some(entry)) => {
                    let may_pass_on =
                        may_pass_on && hold.resource.kind.hands_over() && entry.is_held_by(hold);
                    entry.queue.release(Arc::clone(hold), may_pass_on, now)
                }
                (GuardEnd::Last { .. }, None) => QueueEffect::Release(Arc::clone(hold)),
                (GuardEnd::Shared | GuardEnd::Lost { .. }, _) => QueueEffect::Nothing,
            };
            (ended, then)
        };
        hold_ref.announce_end();
        match (ended, then) {
            (GuardEnd::Last { .. }, QueueEffect::HandedOver(wake)) => {
                wake.notify_one();
                EndOutcome::Done
            }
            (GuardEnd::Last { .. }, _) => self.stop(hold, now),
            (GuardEnd::Shared, _) => {
                self.session.look_at(hold);
                EndOutcome::Done
            }
            (GuardEnd::Lost { loss, last }, _) => {
                if last {
                    let _known = hold.stop_renewals(now);
                    self.session.lose(hold, loss);
                    self.freed(hold, false);
                }
                EndOutcome::Lost(loss)
            }
        }
    }

    /// No renewal follows; what is left is to tell the server.
    fn stop(self: &Arc<Self>, hold: &Arc<Hold>, now: Tick) -> EndOutcome {
        if let Err(loss) = hold.stop_renewals(now) {
            self.session.lose(hold, loss);
            self.freed(hold, false);
            return EndOutcome::Lost(loss);
        }
        self.session.unwatch(hold);
        let (registry, freed) = (Arc::downgrade(self), Arc::clone(hold));
        EndOutcome::Release(PendingRelease::of_hold(hold).then(move |settled| {
            let others_wait = settled == Settled::Answered(Released::Freed { others_wait: true });
            match registry.upgrade() {
                Some(registry) => registry.freed(&freed, others_wait),
                None => freed.announce_over(),
            }
        }))
    }

    /// A hold of this client is no more: whoever is first in line may ask the server.
    fn freed(&self, hold: &Hold, others_wait: bool) {
        let resource = hold.resource.clone();
        let mut nobody_waits = false;
        {
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.get_mut(&resource)
                && entry.is_held_by(hold)
            {
                entry.holder = None;
                entry.yield_first = others_wait;
                if entry.is_idle() {
                    entries.remove(&resource);
                    nobody_waits = true;
                }
            }
        }
        if others_wait && nobody_waits {
            self.yielding.lock().give(resource, self.session.now());
        }
        hold.announce_over();
    }

    /// Whoever leaves a queue last takes the entry along, where nobody holds the key.
    pub(super) fn forget_if_idle(&self, resource: &Resource) {
        let mut entries = self.entries.lock();
        if entries.get(resource).is_some_and(Entry::is_idle) {
            entries.remove(resource);
        }
    }

    /// Does what a change in a queue asks for.
    pub(super) fn follow(self: &Arc<Self>, then: QueueEffect<Arc<Hold>, Arc<Notify>>) {
        let (release, wake) = match then {
            QueueEffect::Nothing => (None, None),
            QueueEffect::Wake(wake) | QueueEffect::HandedOver(wake) => (None, Some(wake)),
            QueueEffect::Release(hold) => (Some(hold), None),
            QueueEffect::ReleaseAndWake(hold, wake) => (Some(hold), Some(wake)),
        };
        if let Some(hold) = release {
            self.give_back(&hold);
        }
        if let Some(wake) = wake {
            wake.notify_one();
        }
    }

    /// Releases, in the background, a hold that has no guard.
    pub(super) fn give_back(self: &Arc<Self>, hold: &Arc<Hold>) {
        if let EndOutcome::Release(pending) = self.stop(hold, self.session.now()) {
            self.session.release_later(pending);
        }
    }

    /// How many acquisitions wait.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiter_slots(&self) -> usize {
        self.limits.size()
    }

    /// Keys with an entry, and the waiters in all queues.
    #[cfg(feature = "test-util")]
    pub(crate) fn size(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        (
            entries.len(),
            entries.values().map(|entry| entry.queue.len()).sum(),
        )
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.session.retire();
    }
}

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

use super::limits::{Crowd, Waits};
use super::queue::{Queue, Then};
use super::slot::Place;
use super::yielding::Turns;
use crate::backend::Released;
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{Debt, Ended, Hold, Keeper, Settled, Tenure};
use crate::key::Key;
use crate::kind::{Kind, Line};
use crate::wait::Ask;

/// What one client waits for and holds. The last handle to it ends the client's tasks.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) keeper: Arc<Keeper>,
    pub(super) entries: Mutex<HashMap<(Kind, Key), Entry, RandomState>>,
    turns: Mutex<Turns<(Kind, Key)>>,
    crowd: Arc<Crowd>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Queue<Arc<Hold>, Arc<Notify>>,
    pub(super) holder: Option<Holder>,
    /// Other processes heard of the last release: the next head lets them go first.
    pub(super) others_turn: bool,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) hold: Arc<Hold>,
    task: Option<task::Id>,
}

/// How a guard's part ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Nothing has to be sent.
    Done,
    /// The hold is to be released in the server.
    Release(Debt),
    /// It was gone before.
    Lost(Loss),
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            queue: Queue::new(),
            holder: None,
            others_turn: false,
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
        self.others_turn = false;
        self.holder = Some(Holder {
            hold: Arc::clone(hold),
            task: task::try_id(),
        });
    }
}

impl Registry {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Arc<Self> {
        Arc::new(Self {
            keeper,
            entries: Mutex::default(),
            turns: Mutex::default(),
            crowd: Arc::default(),
        })
    }

    /// An acquisition has to wait, and counts as a waiter from here on; `first`: others wait behind it already, and not
    /// it is one too many.
    ///
    /// # Errors
    /// [`Error::Overloaded`] where as many wait already as it bears.
    pub(crate) fn begin_to_wait(&self, ask: &Ask, at: usize, first: bool) -> Result<Waits, Error> {
        let key = &ask.wanted[at].key;
        if first {
            return Ok(self.crowd.join_as_first(key));
        }
        let joined = self.crowd.join(key, ask.max_waiters);
        joined.map_err(|waiters| Error::Overloaded {
            key: key.text().to_owned(),
            waiters,
        })
    }

    /// Takes a place: the last one in the queue of a key, or one beside it. A waiter with a lease of its own is handed no
    /// hold of the watchdog's, nor is one that wants more than that hold.
    pub(crate) fn join(self: &Arc<Self>, ask: &Ask, at: usize, takes_over: bool) -> Place {
        let line = ask.wanted[at].kind.line();
        let mut place = Place::new(self, ask, at, takes_over);
        let in_line = place.lines_up && (line == Line::Local || self.has_line(&place.entry));
        if in_line {
            let others_turn = self.turns.lock().take(&place.entry, ask.since);
            place.join_queue(others_turn);
        }
        place
    }

    /// Does anyone stand in line for a key?
    fn has_line(&self, entry: &(Kind, Key)) -> bool {
        let entries = self.entries.lock();
        entries
            .get(entry)
            .is_some_and(|entry| !entry.queue.is_empty())
    }

    /// Does the running task hold the key already?
    pub(crate) fn is_held_by_this_task(&self, kind: Kind, key: &Key) -> bool {
        let entries = self.entries.lock();
        let holder = entries
            .get(&(kind, key.clone()))
            .and_then(|entry| entry.holder.as_ref());
        holder.is_some_and(|holder| holder.task.is_some() && holder.task == task::try_id())
    }

    /// A hold that was granted to one that did not queue.
    pub(crate) fn granted(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.keeper.watch(hold);
        if hold.kind.line() == Line::Shared {
            return;
        }
        let now = self.keeper.now();
        let left_over = {
            let mut entries = self.entries.lock();
            let entry = entries
                .entry((hold.kind, hold.key.clone()))
                .or_insert_with(Entry::new);
            entry.set_holder(hold);
            entry.queue.began(now)
        };
        if let Some(left_over) = left_over {
            self.give_back(&left_over);
        }
    }

    /// A guard ends: its hold goes on with other guards or the next local waiter, or is to be released.
    pub(crate) fn end(self: &Arc<Self>, tenure: &Tenure) -> End {
        let now = self.keeper.now();
        let hold = tenure.hold();
        let (ended, then) = {
            let mut entries = self.entries.lock();
            let ended = tenure.finish(now);
            let then = match (ended, entries.get_mut(&(hold.kind, hold.key.clone()))) {
                (Ended::Last { may_pass_on }, Some(entry)) => {
                    let may_pass_on =
                        may_pass_on && hold.kind.hands_over() && entry.is_held_by(hold);
                    entry.queue.release(Arc::clone(hold), may_pass_on, now)
                }
                (Ended::Last { .. }, None) => Then::Release(Arc::clone(hold)),
                (Ended::Shared | Ended::Lost { .. }, _) => Then::Nothing,
            };
            (ended, then)
        };
        tenure.announce_end();
        match (ended, then) {
            (Ended::Last { .. }, Then::HandedOver(wake)) => {
                wake.notify_one();
                End::Done
            }
            (Ended::Last { .. }, _) => self.stop(hold, now),
            (Ended::Shared, _) => {
                self.keeper.look_at(hold);
                End::Done
            }
            (Ended::Lost { loss, last }, _) => {
                if last {
                    let _known = hold.stop_renewals(now);
                    self.keeper.lose(hold, loss);
                    self.freed(hold, false);
                }
                End::Lost(loss)
            }
        }
    }

    /// No renewal follows; what is left is to tell the server.
    fn stop(self: &Arc<Self>, hold: &Arc<Hold>, now: Tick) -> End {
        if let Err(loss) = hold.stop_renewals(now) {
            self.keeper.lose(hold, loss);
            self.freed(hold, false);
            return End::Lost(loss);
        }
        self.keeper.unwatch(hold);
        let (registry, freed) = (Arc::downgrade(self), Arc::clone(hold));
        End::Release(Debt::of_hold(hold).then(move |settled| {
            let others_wait = settled == Settled::Answered(Released::Freed { others_wait: true });
            match registry.upgrade() {
                Some(registry) => registry.freed(&freed, others_wait),
                None => freed.announce_over(),
            }
        }))
    }

    /// A hold of this client is no more: whoever is first in line may ask the server.
    fn freed(&self, hold: &Hold, others_wait: bool) {
        let place = (hold.kind, hold.key.clone());
        let mut nobody_waits = false;
        {
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.get_mut(&place)
                && entry.is_held_by(hold)
            {
                entry.holder = None;
                entry.others_turn = others_wait;
                if entry.is_idle() {
                    entries.remove(&place);
                    nobody_waits = true;
                }
            }
        }
        if others_wait && nobody_waits {
            self.turns.lock().give(place, self.keeper.now());
        }
        hold.announce_over();
    }

    /// Whoever leaves a queue last takes the entry along, where nobody holds the key.
    pub(super) fn forget_if_idle(&self, place: &(Kind, Key)) {
        let mut entries = self.entries.lock();
        if entries.get(place).is_some_and(Entry::is_idle) {
            entries.remove(place);
        }
    }

    /// Does what a change in a queue asks for.
    pub(super) fn follow(self: &Arc<Self>, then: Then<Arc<Hold>, Arc<Notify>>) {
        let (release, wake) = match then {
            Then::Nothing => (None, None),
            Then::Wake(wake) | Then::HandedOver(wake) => (None, Some(wake)),
            Then::Release(hold) => (Some(hold), None),
            Then::ReleaseAndWake(hold, wake) => (Some(hold), Some(wake)),
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
        if let End::Release(debt) = self.stop(hold, self.keeper.now()) {
            self.keeper.release_later(debt);
        }
    }

    /// How many acquisitions wait.
    #[cfg(feature = "test-util")]
    pub(crate) fn crowd(&self) -> usize {
        self.crowd.size()
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
        self.keeper.retire();
    }
}

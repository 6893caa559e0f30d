//! The keys that this client holds or waits for, each with its queue and its local holder.
//!
//! # Invariants
//! 1. A key has an entry while it has a local waiter or a local holder, and no longer.
//! 2. The mutex here is taken before that of any hold. It is held for a few lines, and never while waking or sending.
//! 3. While somebody needs the first waiter of a queue, it is checked at intervals that this waiter is still polled.
//! 4. What follows from a change, such as a wake-up or a release, is made before a waker, the log or the metrics are called, and
//!    its drop carries it out: each of these calls may panic.
//! 5. A hold in a waiter's slot is still the entry's holder. The last waiter to leave has it released, and the entry goes
//!    with it.

use std::collections::HashSet;
use std::panic::{Location, RefUnwindSafe};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use scopeguard::defer;

use super::checked_heads::{CheckedHeads, FoundHeads};
use super::entry::{self, Entries, Entry};
use super::queue::Queue;
use super::shared_holds::SharedHolds;
use super::turns::YieldList;
use super::used_kinds::UsedKinds;
use super::waits::limits::WaiterLimits;
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::config::COPIED_MUTEX;
use crate::hold::{Hold, Lease};
use crate::resource::key::Resource;
use crate::resource::kind::Line;
use crate::session::{Callbacks, Session};
use crate::sync::{Mutex, MutexGuard, foreign};
use crate::telemetry;

/// The keys that one client waits for or holds. When it is dropped, the client's tasks end.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) session: Arc<Session>,
    pub(super) entries: Mutex<Entries>,
    pub(super) checked: CheckedHeads,
    /// What the waiters know of the keys that this client left to others. Its mutex is taken last.
    pub(crate) yielded: Mutex<YieldList>,
    pub(super) limits: Arc<WaiterLimits>,
    pub(super) used_kinds: UsedKinds,
    pub(super) shared_holds: SharedHolds,
    /// Pairs of lines that the log has named: where a hold was acquired, and where the same task waits for it.
    pub(super) told_for_itself: Mutex<HashSet<[&'static Location<'static>; 2], RandomState>>,
}

// A panic leaves nothing half-changed here: no foreign code runs under a mutex of a client.
impl RefUnwindSafe for Registry {}

impl Registry {
    pub(crate) fn new(session: Arc<Session>) -> Arc<Self> {
        let registry = Arc::new(Self {
            session,
            entries: Mutex::default(),
            checked: CheckedHeads::default(),
            yielded: Mutex::default(),
            limits: Arc::default(),
            used_kinds: UsedKinds::new(),
            shared_holds: SharedHolds::default(),
            told_for_itself: Mutex::default(),
        });
        // Weak: the registry keeps the session, and neither would be dropped otherwise.
        let callbacks: Weak<Self> = Arc::downgrade(&registry);
        registry.session.set_callbacks(callbacks);
        registry
    }

    /// Whether a hold of this client has the resource, with a lease that has not ended.
    pub(crate) fn is_held(&self, resource: &Resource, now: Tick) -> bool {
        let entries = self.entries.lock();
        let holder = entries
            .get(resource)
            .and_then(|entry| entry.holder.as_ref());
        holder.is_some_and(|holder| holder.hold.lease(Lease::deadline) > now)
    }

    pub(crate) fn has_waiters(&self, resource: &Resource) -> bool {
        let entries = self.entries.lock();
        entries.get(resource).is_some_and(Entry::has_waiters)
    }

    /// Records a hold that was granted to an acquisition which did not queue.
    pub(super) fn granted(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.session.watch(hold);
        self.set_holder(hold);
    }

    /// Makes a watched hold the holder of its key.
    pub(super) fn set_holder(self: &Arc<Self>, hold: &Arc<Hold>) {
        if hold.resource.kind.line() == Line::Shared {
            return self.shared_holds.note(hold, &self.session.watchdog);
        }
        self.used_kinds.note(hold.resource.kind);
        let now = hold.latest_guard().since;
        let (former, left_over) = {
            let mut entries = self.entries.lock();
            let entry = entries.entry(hold.resource.clone()).or_default();
            // It has not listened, or not for long.
            (entry.set_holder(hold, None), entry.began(now))
        };
        // Also if a waker panics.
        defer! {
            if let Some(left_over) = &left_over {
                self.give_back(left_over);
            }
        }
        if let Some(former) = &former {
            self.session.verify(former);
        }
    }

    /// This client has freed the key by force. A hold of its own that had the key is lost, and nobody takes it over any more.
    pub(crate) fn freed_by_force(&self, resource: &Resource) {
        self.session.tracking.freed(resource);
        let entries = self.entries.lock();
        for freed in self.used_kinds.same_data(resource) {
            if let Some(holder) = entries.get(&freed).and_then(|entry| entry.holder.as_ref()) {
                holder.hold.with_lease(|lease| lease.guards.keep_hold());
            }
        }
    }

    /// Checks the first waiters of all queues where somebody needs them. One that has not been polled since the last check
    /// loses its place, and the hold in its slot goes on to the next one. Returns whether there is any such queue.
    fn check_heads(self: &Arc<Self>) -> bool {
        let now = self.session.now();
        let FoundHeads {
            asked,
            absent,
            effects,
            is_any_left,
        } = self.checked.check(&mut self.entries.lock(), now);
        // Outside of the mutexes: these may run any code. If one of them panics, the others are called, and the holds continue.
        defer! { foreign::each(effects, |effect| self.follow(effect)); }
        defer! { foreign::each(asked, |head| head.ask()); }
        // One line for all: on a machine that is too busy, thousands may be absent at each check.
        defer! {
            if let Some((key, _)) = absent.first() {
                telemetry::waiter_absent(key, absent.len() - 1);
            }
        }
        // They may wait for something else than their turn.
        foreign::each(&absent, |(_, head)| head.wake());
        is_any_left
    }

    /// Wakes all waiters of the queues, because the client was closed.
    pub(crate) fn close(&self) {
        // Also if a waker of another wait panics.
        defer! { foreign::each(wakers_of(self.entries.lock()), |waker| waker.wake()); }
        // First: a waiter that is woken asks at once whether the client is closed.
        self.session.closed.set();
    }

    /// The client has another identity: see [`Session::give_up`].
    pub(crate) fn give_up(&self) {
        // Also if foreign code panics before.
        defer! {
            // A thread that does not exist in the copy of a process may have locked the mutex.
            let wakers = self.entries.try_lock_for(COPIED_MUTEX).map(wakers_of);
            foreign::each(wakers.into_iter().flatten(), |waker| waker.wake());
        }
        self.session.give_up();
    }

    /// Removes the entry of a key that has neither a waiter nor a holder.
    pub(super) fn forget_if_idle(&self, resource: &Resource) {
        let mut entries = self.entries.lock();
        if entries.get(resource).is_some_and(|entry| entry.is_idle()) {
            entry::remove(&mut entries, resource);
        }
    }

    /// How many acquisitions count as waiters.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiter_slots(&self) -> usize {
        self.limits.size()
    }

    /// Whether the client holds, acquires or releases anything.
    #[cfg(feature = "redis")]
    pub(crate) fn has_stake(&self) -> bool {
        self.session.watchdog.len() + self.session.releaser.pending() > 0
            || !self.entries.lock().is_empty()
    }

    /// Keys with an entry, and the waiters in all queues.
    #[cfg(feature = "test-util")]
    pub(crate) fn size(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        (entries.len(), queues(&entries).map(Queue::len).sum())
    }
}

impl Callbacks for Registry {
    fn freed(&self, hold: &Hold, others: Option<u32>) {
        Self::freed(self, hold, others);
    }

    fn check_heads(self: Arc<Self>) -> bool {
        Self::check_heads(&self)
    }

    fn log_long_waits(self: Arc<Self>) -> Tick {
        self.tell_waits()
    }
}

/// The wakers of all waiters that stand in a queue.
fn wakers_of(entries: MutexGuard<'_, Entries>) -> Vec<Arc<SlotWaker>> {
    queues(&entries).flat_map(Queue::wakers).cloned().collect()
}

/// The queues of all keys that have one.
fn queues(entries: &Entries) -> impl Iterator<Item = &Queue<Arc<Hold>, Arc<SlotWaker>>> {
    let waiters = entries.values().filter_map(Entry::waiters);
    waiters.map(|waiters| &waiters.queue)
}

impl Drop for Registry {
    fn drop(&mut self) {
        if !self.session.identity.is_of_this_process() {
            // Kept for ever in this copy of the process: the end of a socket would also end the original's interest in its
            // events, which both share.
            std::mem::forget(Arc::clone(&self.session));
            return;
        }
        // Also if a waker panics that learns of the end of a look.
        defer! { self.session.tend_releaser(); }
        self.session.retire();
    }
}

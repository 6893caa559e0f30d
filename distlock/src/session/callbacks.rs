//! What a session asks of the registry above it, and when the watchdog's task checks the client's waiters.

use std::fmt;
use std::sync::{Arc, Weak};

use scopeguard::guard;

use crate::clock::{AtomicTick, Tick};
use crate::hold::Hold;
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What a session asks of the registry above it: it checks the waiters, and learns that a hold is over.
pub(crate) trait Callbacks: fmt::Debug + Send + Sync {
    /// Records that a hold of this client is over. `others`: how many other clients heard of it, if the server said so.
    fn freed(&self, hold: &Hold, others: Option<u32>);

    /// Checks that the first waiters are still polled. Returns whether another check is needed.
    fn check_heads(self: Arc<Self>) -> bool;

    /// Logs the waits that have become long. Returns when to inspect them again.
    fn tell_long_waits(self: Arc<Self>) -> Tick;
}

/// Which checks are wanted, and who makes them. It costs nothing while nobody waits.
#[derive(Debug)]
pub(crate) struct Inspection {
    callbacks: OnceLock<Weak<dyn Callbacks>>,
    checks_heads: AtomicBool,
    /// When to inspect long waits.
    long_waits_at: AtomicTick,
}

impl Default for Inspection {
    fn default() -> Self {
        Self {
            callbacks: OnceLock::new(),
            checks_heads: AtomicBool::new(false),
            long_waits_at: AtomicTick::new(Tick::NEVER),
        }
    }
}

impl Inspection {
    /// Sets who checks the waiters.
    pub(crate) fn set(&self, callbacks: Weak<dyn Callbacks>) {
        // The session has one registry, which sets them once.
        let _first = self.callbacks.set(callbacks);
    }

    pub(super) fn callbacks(&self) -> Option<Arc<dyn Callbacks>> {
        self.callbacks.get().and_then(Weak::upgrade)
    }

    /// Asks for a check of the heads. Returns whether none was asked for yet.
    pub(super) fn want_check(&self) -> bool {
        // The load keeps the usual case free of a write to memory that all threads share. Release and acquire: the check
        // sees what it was asked for.
        !self.checks_heads.load(Ordering::Acquire)
            && !self.checks_heads.swap(true, Ordering::AcqRel)
    }

    pub(super) fn wants_check(&self) -> bool {
        // Acquire: pairs with the swap in `want_check`.
        self.checks_heads.load(Ordering::Acquire)
    }

    /// Calls `look_for_absent`, and then checks the first waiters. Both return whether another check is needed.
    pub(super) fn check(&self, look_for_absent: impl FnOnce() -> bool) {
        // Before the check: what is asked for meanwhile is not lost. Release: a caller that finds the flag reset asks again.
        self.checks_heads.store(false, Ordering::Release);
        // Also if a waker or a subscriber of the log panics: those who have not been checked need the next check.
        let mut is_any_left = guard(true, |is_any_left| {
            // A check that is asked for meanwhile sets it as well. It is never reset here.
            if is_any_left {
                self.checks_heads.store(true, Ordering::Release);
            }
        });
        // In this order: the owner of a first waiter that is absent ends before the next one asks.
        let is_any_unguarded = look_for_absent();
        let callbacks = self.callbacks();
        let needs_heads = callbacks.is_some_and(|callbacks| callbacks.check_heads());
        *is_any_left = is_any_unguarded || needs_heads;
    }

    /// Asks for an inspection of long waits at `at`. Returns whether none was planned until then.
    ///
    /// The caller was counted among the waiters before, under a mutex that the inspection takes as well. So if it finds the time of an
    /// inspection that has begun meanwhile, that one finds the caller.
    pub(super) fn inspect_by(&self, at: Tick) -> bool {
        self.long_waits_at.lower_to(at)
    }

    /// Inspects long waits, if that is due. Returns when the next inspection is due.
    pub(super) fn tell_long_waits(&self, now: Tick) -> Tick {
        // Before the inspection: who comes during it asks for another one.
        let is_due = self.long_waits_at.take_by(now);
        if is_due && let Some(callbacks) = self.callbacks() {
            // An earlier inspection that was planned meanwhile stays.
            let _earlier = self.inspect_by(callbacks.tell_long_waits());
        }
        self.long_waits_at.get()
    }
}

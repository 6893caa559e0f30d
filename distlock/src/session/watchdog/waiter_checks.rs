//! Which checks of a client's waiters the watchdog's task has to make, and when.

use std::sync::Arc;

use scopeguard::guard;

use crate::clock::{AtomicTick, Tick};
use crate::session::Callbacks;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Which checks are wanted. It costs nothing while nobody waits.
#[derive(Debug)]
pub(crate) struct WaiterChecks {
    checks_heads: AtomicBool,
    /// When to look at long waits.
    long_waits_at: AtomicTick,
}

impl Default for WaiterChecks {
    fn default() -> Self {
        Self {
            checks_heads: AtomicBool::new(false),
            long_waits_at: AtomicTick::new(Tick::NEVER),
        }
    }
}

impl WaiterChecks {
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

    /// Calls `look_for_absent`, and then has the registry check the first waiters. Both return whether another check is needed.
    pub(super) fn check(
        &self,
        look_for_absent: impl FnOnce() -> bool,
        callbacks: impl FnOnce() -> Option<Arc<dyn Callbacks>>,
    ) {
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
        let needs_heads = callbacks().is_some_and(|callbacks| callbacks.check_heads());
        *is_any_left = is_any_unguarded || needs_heads;
    }

    /// Asks for a look at long waits at `at`. Returns whether none was planned until then.
    ///
    /// The caller was counted among the waiters before, under a mutex that the look takes as well. So if the caller finds the time of
    /// a look that has begun meanwhile, that look finds the caller.
    pub(super) fn log_long_waits_by(&self, at: Tick) -> bool {
        self.long_waits_at.lower_to(at)
    }

    /// Has the registry log long waits, if that is due. Returns when it is due next.
    pub(super) fn log_long_waits(
        &self,
        now: Tick,
        callbacks: impl FnOnce() -> Option<Arc<dyn Callbacks>>,
    ) -> Tick {
        // Before the look: a caller that comes during the look asks for another one.
        let is_due = self.long_waits_at.take_by(now);
        if is_due && let Some(callbacks) = callbacks() {
            // An earlier look that was planned meanwhile stays.
            let _earlier = self.log_long_waits_by(callbacks.log_long_waits());
        }
        self.long_waits_at.get()
    }
}

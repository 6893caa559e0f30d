//! Renews the leases of all holds of one client, from one task, and finds those that are lost.
//!
//! # Invariants
//! 1. A hold is watched from its grant to its release or loss. It is registered by owner and not by key, so that an
//!    expired hold does not affect the next hold on its key. Only the code that releases it or declares its loss removes it.
//! 2. A deadline counts from before the command was sent, on this process's own clock.
//! 3. A released hold is never renewed: its lease ends first, and then nothing is due any more.
//! 4. Losses do not wait for renewals: answers arrive while the task sleeps to the next deadline.
//! 5. Only a few batches of many holds are under way to a server at a time, so that no renewal times out behind the others.
//!    A server that does not answer delays no renewals on other servers. A renewal counts as sent when its batch is sent.
//!    A batch is filled up with holds that are due soon, so that few scripts renew many holds.
//! 6. A hold that the server may have lost is confirmed ahead of its time, by a renewal: after it was handed over, and
//!    when a connection is re-established.

mod agenda;
mod batch;
mod waiter_checks;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use self::agenda::{Agenda, Numbered};
use self::batch::{UntoldFailures, renew};
use self::waiter_checks::WaiterChecks;
use self::waiting::Waiting;
use super::{Session, tracking};
use crate::clock::Tick;
use crate::config::{RENEWALS_PER_LEASE, RENEWED_EARLY, WAITER_CHECK_PAUSE};
use crate::hold::{Hold, Lease};
use crate::sync::{Mutex, MutexGuard};
use crate::sync::{Notify, foreign};

/// The watched holds, and the task's way to learn of a change.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    agenda: Mutex<Agenda<Arc<Hold>>>,
    wake: Notify,
    waiter_checks: WaiterChecks,
    untold_failures: Mutex<UntoldFailures>,
}

impl Numbered for Arc<Hold> {
    fn owner_number(&self) -> &u64 {
        &self.number
    }
}

impl Watchdog {
    /// Watches the hold from now on. Returns whether it was not watched before.
    pub(super) fn watch(&self, hold: &Arc<Hold>, at: Tick) -> bool {
        let mut agenda = self.agenda.lock();
        let is_new = agenda.add(Arc::clone(hold), at);
        self.wake_by(agenda, at);
        is_new
    }

    /// Plans a check of the hold at `at`, unless an earlier one is planned.
    pub(super) fn schedule_check(&self, number: u64, at: Tick) {
        let mut agenda = self.agenda.lock();
        agenda.schedule_check(number, at);
        self.wake_by(agenda, at);
    }

    /// Plans a check of each of these holds at its time, unless an earlier one is planned.
    fn schedule_checks(&self, checks: &[(u64, Tick)]) {
        if let Some(first) = checks.iter().map(|(_, at)| *at).min() {
            let mut agenda = self.agenda.lock();
            agenda.schedule_checks(checks);
            self.wake_by(agenda, first);
        }
    }

    /// Plans the next check of the hold.
    pub(super) fn schedule_next_check(&self, hold: &Hold) {
        self.schedule_check(hold.number(), hold.next_check());
    }

    /// Has long waits logged at `due`.
    pub(crate) fn log_long_waits_by(&self, due: Tick) {
        if due != Tick::NEVER && self.waiter_checks.log_long_waits_by(due) {
            self.wake();
        }
    }

    /// Has the task check the first waiters after [`WAITER_CHECK_PAUSE`].
    pub(crate) fn check_waiters_soon(&self) {
        if self.waiter_checks.want_check() {
            self.wake();
        }
    }

    /// Has the task wake up at this time at the latest.
    fn wake_by(&self, mut agenda: MutexGuard<'_, Agenda<Arc<Hold>>>, at: Tick) {
        let wake = agenda.arm(at);
        // A waker may run any code, so not under the mutex.
        drop(agenda);
        if wake {
            foreign::notify_own_task(&self.wake);
        }
    }

    pub(super) fn unwatch(&self, number: u64) -> bool {
        self.agenda.lock().remove(number)
    }

    /// The hold of this client's owner with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Hold>> {
        self.agenda.lock().get(number).map(Arc::clone)
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.agenda.lock().get(number).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.agenda.lock().holds().len() == 0
    }

    /// How many holds it takes care of.
    pub(crate) fn len(&self) -> usize {
        self.agenda.lock().holds().len()
    }

    pub(super) fn wake(&self) {
        foreign::notify_own_task(&self.wake);
    }

    /// All watched holds: those that are neither released nor lost.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.agenda.lock().holds().map(Arc::clone).collect()
    }

    /// The watched holds that may be tracked by the server, and are not yet.
    pub(super) fn untracked(&self) -> Vec<Arc<Hold>> {
        let agenda = self.agenda.lock();
        let holds = agenda.holds();
        let untracked =
            holds.filter(|hold| !hold.is_tracked.is_set() && hold.resource.kind.has_lease());
        untracked.map(Arc::clone).collect()
    }

    /// All watched holds; none if their mutex is not free within this time.
    pub(super) fn holds_within(&self, time: Duration) -> Vec<Arc<Hold>> {
        let agenda = self.agenda.try_lock_for(time);
        agenda.map_or_else(Vec::new, |agenda| agenda.holds().map(Arc::clone).collect())
    }

    /// Plans a check of every hold, because the renewals that a former task had in flight will not be answered.
    fn restart(&self, now: Tick) {
        for hold in self.holds() {
            hold.with_lease(Lease::forget_in_flight);
            self.schedule_check(hold.number(), now);
        }
    }

    fn take_due(&self, now: Tick, soon: Tick) -> Vec<Arc<Hold>> {
        self.agenda.lock().take_due(now, soon)
    }

    fn next_alarm(&self, now: Tick) -> Tick {
        self.agenda.lock().next_alarm(now)
    }
}

/// The watchdog task of one client. It also has old holds tracked by the server, and watches for suspends of the machine, for
/// all sleepers of its client.
pub(super) async fn run(session: Arc<Session>) {
    crate::sync::select! {
        () = renew_until_retired(&session) => {}
        () = tracking::follow(&session) => {}
        never = session.clock.watch() => match never {},
    }
}

async fn renew_until_retired(session: &Arc<Session>) {
    let watchdog = &session.watchdog;
    // Before the holds are checked: a connection that is replaced meanwhile completes `replaced`.
    let changes = session.backend.epoch_changes();
    watchdog.restart(session.now());
    // A connection may have been replaced while no task ran.
    session.reconnected();
    let mut replaced = session.backend.epoch_changes_after(changes);
    let mut waiting = Waiting::default();
    let mut renewals = FuturesUnordered::new();
    let mut check_waiters_at = Tick::NEVER;
    while !session.retirement.has_begun() {
        let now = session.now();
        let soon = now.after(session.config.watchdog_timeout / RENEWALS_PER_LEASE / RENEWED_EARLY);
        waiting.add(session, watchdog.take_due(now, soon));
        while let Some((server, batch)) = waiting.next_batch(session, now, soon) {
            let renewed = renew(Arc::clone(session), now, batch);
            renewals.push(renewed.map(move |()| server));
        }
        // Usually there are none: each check of a hold costs a cache miss.
        waiting.check_those_left(session, now, soon);
        if now >= check_waiters_at {
            // If this check is late, the others may not have run either since they were asked.
            let is_late = now.since(check_waiters_at) >= WAITER_CHECK_PAUSE / 2;
            check_waiters_at = Tick::NEVER;
            let look_for_absent = || session.unguarded.look_for_absent(session, is_late);
            let callbacks = || session.callbacks();
            watchdog.waiter_checks.check(look_for_absent, callbacks);
        }
        if check_waiters_at == Tick::NEVER && watchdog.waiter_checks.wants_check() {
            check_waiters_at = now.after(WAITER_CHECK_PAUSE);
        }
        let callbacks = || session.callbacks();
        let log_at = watchdog.waiter_checks.log_long_waits(now, callbacks);
        let next = watchdog.next_alarm(now).min(check_waiters_at).min(log_at);
        crate::sync::select! {
            () = watchdog.wake.notified() => {}
            () = session.clock.sleep_until(next) => {}
            Some(server) = renewals.next() => waiting.answered(server),
            changes = &mut replaced => {
                session.reconnected();
                replaced = session.backend.epoch_changes_after(changes);
            }
        }
    }
}

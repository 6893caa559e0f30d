//! The end of a guard: other guards keep its hold, the next local waiter gets it, or it is released.
//!
//! [`Registry::end`] decides which of them, and carries it out. [`Registry::freed`] is the last step of a release, when it is
//! answered or given up: the first in line may ask the server then.

use std::sync::Arc;
use std::time::Duration;

use scopeguard::{defer, guard};

use super::entry::{self, Entries, Entry};
use super::queue::QueueEffect;
use super::registry::Registry;
use super::turns::{GrantRun, RoundRobin};
use super::waker::SlotWaker;
use crate::clock::Tick;
use crate::error::Loss;
use crate::hold::{GuardEnd, Hold, HoldRef};
use crate::session::Release;
use crate::telemetry;

/// What becomes of a hold after the end of a guard.
enum AfterGuard {
    /// Other guards have it.
    Shared,
    /// This waiter has it, and is woken.
    HandedOver(Arc<SlotWaker>),
    /// It waits for the releaser's task, and the next acquisition may take it back until then.
    WaitsForRelease,
    Release,
    /// It is lost. `last`: no guard is left.
    Lost {
        loss: Loss,
        last: bool,
    },
}

/// What the end of a guard has changed in its hold and in the queue of the key.
struct EndedGuard {
    after: AfterGuard,
    /// How long the guard had the hold, if it was the last one.
    held: Duration,
    needs_checks: bool,
}

impl Registry {
    /// Ends a guard. Returns the release that the caller has to send, if there is one. If the caller drops it, the release is
    /// sent in the background.
    ///
    /// `was_dropped`: nobody waits for the release. So the hold waits for the releaser's task, and until that begins the
    /// release, the next acquisition may take the hold back.
    ///
    /// # Errors
    /// The loss, if the hold was lost before.
    pub(crate) fn end(
        self: &Arc<Self>,
        hold_ref: &HoldRef,
        was_dropped: bool,
        now: Tick,
    ) -> Result<Option<Release>, Loss> {
        let hold = hold_ref.hold();
        let ended = self.count_out(hold_ref, was_dropped, now);
        let held = ended.held;
        let needs_checks = ended.needs_checks;
        // Outside of the mutex, as all that follows: a waker may run any code. It may also panic, as the log and the metrics
        // may. So what follows from the end is made first, and its drop carries it out.
        let announce = || {
            if needs_checks {
                self.session.watchdog.check_waiters_soon();
            }
            hold_ref.announce_end();
        };
        match ended.after {
            AfterGuard::HandedOver(wake) => {
                // After all else, also if that panics: the next waiter has the hold, and waits for nothing but this.
                defer! { wake.wake(); }
                announce();
                telemetry::handed_over(&hold.resource, hold.owner(), held);
                hold.meter.handed_over();
                hold.meter.held(held);
                Ok(None)
            }
            AfterGuard::WaitsForRelease => {
                // Also if a waker panics: nobody else would release the hold.
                defer! { self.session.release_dropped(hold); }
                announce();
                tell_released(hold, held);
                Ok(None)
            }
            AfterGuard::Release => self.begin_release(hold, held, now, announce).map(Some),
            AfterGuard::Shared => {
                // The count is another one, or a fixed lease has gone: a renewal may be due.
                defer! { self.session.schedule_check(hold); }
                announce();
                Ok(None)
            }
            AfterGuard::Lost { loss, last } => {
                defer! { self.session.stop_lost(hold, loss, last); }
                announce();
                Err(loss)
            }
        }
    }

    /// Ends the renewals. Returns the release that has to be sent.
    fn begin_release(
        &self,
        hold: &Arc<Hold>,
        held: Duration,
        now: Tick,
        announce: impl FnOnce(),
    ) -> Result<Release, Loss> {
        // Announced also if the end of the renewals panics.
        let announced = guard((), |()| announce());
        let release = self.session.stop(hold, now);
        // By name: the value of a block whose end panics is not dropped.
        drop(announced);
        match release {
            Ok(_) => tell_released(hold, held),
            // Lost since the guard was counted out.
            Err(_) => hold.meter.held(held),
        }
        release
    }

    /// Counts a guard out, and asks the queue of its key who has the hold next.
    fn count_out(&self, hold_ref: &HoldRef, was_dropped: bool, now: Tick) -> EndedGuard {
        let hold = hold_ref.hold();
        // The count, the queue and the hand-over change in one section of the mutex. Otherwise two guards could end as
        // the last one.
        let mut entries = self.entries.lock();
        let mut ended = EndedGuard {
            after: AfterGuard::Shared,
            held: Duration::ZERO,
            needs_checks: false,
        };
        let may_pass_on = match hold_ref.leave(now) {
            GuardEnd::Shared => return ended,
            GuardEnd::Lost { loss, last } => {
                ended.after = AfterGuard::Lost { loss, last };
                return ended;
            }
            GuardEnd::Last { may_pass_on, held } => {
                ended.held = held;
                may_pass_on
            }
        };
        ended.after = AfterGuard::Release;
        // Reads and permits have an entry only while somebody waits, and are not handed over.
        let Some(entry) = entries.get_mut(&hold.resource) else {
            return ended;
        };
        // Not if the entry has a newer holder: that grant shows that the server does not have this hold any more.
        let may_pass_on = may_pass_on && hold.resource.kind.hands_over() && entry.is_held_by(hold);
        let has_waiters = entry.has_waiters();
        let mut effect = QueueEffect::Nothing;
        if has_waiters {
            let waiters = entry.waiters_mut();
            effect = waiters.queue.release(Arc::clone(hold), may_pass_on, now);
            ended.needs_checks = self.checked.check_later(waiters, &hold.resource);
        }
        if let QueueEffect::HandedOver(wake) = effect {
            // Before the next waiter can take it, which has the watchdog look at the hold.
            hold.with_lease(|lease| lease.verification.passed_on(now));
            ended.after = AfterGuard::HandedOver(wake);
        } else if was_dropped && may_pass_on && !has_waiters {
            hold.wait_for_release();
            ended.after = AfterGuard::WaitsForRelease;
        }
        ended
    }

    /// Releases, in the background, a hold that has no guard.
    pub(super) fn give_back(self: &Arc<Self>, hold: &Arc<Hold>) {
        // The drop of a release sends it.
        drop(self.session.stop(hold, self.session.now()));
    }

    /// Carries out the effect of a change in a queue. It is called outside of the mutex, because it wakes and sends.
    pub(super) fn follow(self: &Arc<Self>, effect: QueueEffect<Arc<Hold>, Arc<SlotWaker>>) {
        let (release, wake) = match effect {
            QueueEffect::Nothing => (None, None),
            QueueEffect::Wake(wake) | QueueEffect::HandedOver(wake) => (None, Some(wake)),
            QueueEffect::Release(hold) => (Some(hold), None),
            QueueEffect::ReleaseAndWake(hold, wake) => (Some(hold), Some(wake)),
        };
        // Also if the metrics panic.
        defer! {
            if let Some(wake) = &wake {
                wake.wake();
            }
        }
        if let Some(hold) = &release {
            self.give_back(hold);
        }
    }

    /// Records that a hold is over: the first in line may ask the server now. `listeners`: how many other clients heard of the
    /// release, if the server said so.
    pub(super) fn freed(&self, hold: &Hold, listeners: Option<u32>) {
        let resource = &hold.resource;
        // If the server did not say how many listen, nobody gets a turn: a turn of nobody would leave the key idle.
        let others = listeners.unwrap_or(0);
        let is_alone = listeners == Some(0)
            && resource.kind.hands_over()
            && resource.kind.listens()
            && self.session.backend.counts_all_listeners();
        let yielded = {
            let mut entries = self.entries.lock();
            // The server counts no subscriptions of this client, and another kind of lock may wait for the same data.
            let is_alone = is_alone
                && self.used_kinds.same_data_of_others(resource).all(|other| {
                    let entry = entries.get(&other);
                    !entry.is_some_and(Entry::has_waiters)
                });
            take_out(&mut entries, hold, others, is_alone)
        };
        // An entry remembers this itself, as long as there is one.
        if let Some(others) = yielded.filter(|others| others.ahead() > 0) {
            let now = self.session.now();
            self.yielded.lock().add(resource, others, now);
        }
        // Last: those that it wakes look at the entry, which has changed by now.
        hold.over.set();
    }
}

/// Takes a hold that is over out of the entry of its key. `others`: how many other clients heard of its release. `is_alone`: nobody
/// else waits for the key.
///
/// Returns the turns that the other clients have, if this removes the entry.
fn take_out(entries: &mut Entries, hold: &Hold, others: u32, is_alone: bool) -> Option<RoundRobin> {
    // A rule of tests/model: run_ends_once_others_listen.
    let resource = &hold.resource;
    let entry = entries.get_mut(resource)?;
    // Not if the attempt behind the release was granted before this answer came: the entry has the new hold then.
    let is_holder = entry.is_held_by(hold);
    let mut left_to = RoundRobin::released(others, GrantRun::default().turn_of_others());
    // The usual hold has had no waiters behind it, and nothing is to be kept for any.
    if !is_holder || entry.waiters().is_some() {
        let waiters = entry.waiters_mut();
        waiters.queue.run.released(is_alone);
        if others > 0 {
            // Other clients listen. The attempt that was sent behind this release is the last grant of the run, even if it was
            // granted before this reply arrived.
            waiters.queue.run.end();
        }
        if is_holder {
            let own_message = waiters.round_robin.own_message();
            left_to = RoundRobin::released(others, waiters.queue.run.turn_of_others())
                .with_own_message(own_message);
            waiters.yield_to(left_to);
            // Others may poll for the key, which the server does not know. The next waiter decides whether it lets them go first.
            waiters.yield_first |= !resource.kind.listens();
        }
        entry.forget_waiters();
    }
    if !is_holder {
        return None;
    }
    entry.holder = None;
    if !entry.is_idle() {
        return None;
    }
    entry::remove(entries, resource);
    Some(left_to)
}

fn tell_released(hold: &Hold, held: Duration) {
    telemetry::released(&hold.resource, hold.owner(), held);
    hold.meter.held(held);
}

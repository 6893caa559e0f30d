//! Losses that the server tells at once: which holds it tracks, and what the client does when it tells of a change.
//!
//! How a server tracks keys is in `backend/redis/tracking`, with the reasons. Here is who is tracked: holds that are older than
//! [`TRACK_AFTER`]. A hold that comes and goes before that costs one look at a flag. While there are younger ones, the task
//! looks for those that have become old twice a second, and has many read by one command. What is read next is the [`Plan`]'s
//! to say, and how, is in `reads`.
//!
//! A read finds a loss, and never lengthens a lease.

mod plan;
mod reads;

use std::sync::Arc;

use self::plan::Plan;
use self::reads::Reads;
use super::Session;
use crate::backend::Told;
use crate::clock::{Clock, Tick};
use crate::config::{TRACK_AFTER, TRACK_LOOK};
use crate::hold::Hold;
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, foreign};

/// The tracked holds of one client.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// Whether the server tells of changes at all.
    is_on: bool,
    /// Whether there may be a hold that is not tracked yet.
    has_young: AtomicBool,
    /// Whether the plan has any key.
    has_old: AtomicBool,
    plan: Mutex<Plan>,
    wake: Notify,
    clock: Clock,
}

impl Tracking {
    pub(super) fn new(is_on: bool, clock: &Clock) -> Self {
        Self {
            is_on,
            has_young: AtomicBool::new(false),
            has_old: AtomicBool::new(false),
            plan: Mutex::default(),
            wake: Notify::new(),
            clock: clock.clone(),
        }
    }

    /// A hold was granted.
    pub(super) fn began(&self, resource: &Resource) {
        // Relaxed, here and below: the task is woken after the change, and reads it then. Read first: a write would move its
        // cache line between cores.
        if self.is_on && !self.has_young.load(Ordering::Relaxed) {
            self.has_young.store(true, Ordering::Relaxed);
            foreign::notify_own_task(&self.wake);
        }
        self.wrote(resource);
    }

    /// The server has answered a command of this client that may have changed the key. If others share the key, the server may
    /// track it no more for them.
    pub(crate) fn wrote(&self, resource: &Resource) {
        // The clock is read last, since reading it costs more than a look at the flag.
        if self.may_share(resource)
            && self
                .plan
                .lock()
                .wrote(resource.key.name(), self.clock.now())
        {
            foreign::notify_own_task(&self.wake);
        }
    }

    /// This client has freed the key by force, or changed its number. The server does not tell that to the client itself.
    pub(crate) fn freed(&self, resource: &Resource) {
        if self.has_old.load(Ordering::Relaxed)
            && self
                .plan
                .lock()
                .change(resource.key.name(), self.clock.now())
        {
            foreign::notify_own_task(&self.wake);
        }
    }

    /// Whether a renewal of this hold has its key tracked again: the renewal of a young one may end the tracking for an old one.
    pub(super) fn is_to_track(&self, hold: &Hold) -> bool {
        hold.is_tracked.is_set()
            || self.may_share(&hold.resource) && self.plan.lock().has(hold.resource.key.name())
    }

    /// Whether another hold of this client may have the same key, and be tracked.
    fn may_share(&self, resource: &Resource) -> bool {
        let is_shared = matches!(resource.kind.family(), Family::ReadWrite | Family::Permit);
        is_shared && self.has_old.load(Ordering::Relaxed)
    }
}

/// The part of the watchdog's task that has holds tracked.
pub(super) async fn follow(session: &Arc<Session>) {
    let tracking = &session.tracking;
    if !tracking.is_on {
        return std::future::pending().await;
    }
    tracking.plan.lock().restart(session.now());
    let mut told = session.backend.told();
    let mut reads = Reads::new();
    let mut look_at = Tick::default();
    loop {
        let now = session.now();
        if now >= look_at {
            look_at = look_for_old(session, now);
        }
        let due = tracking.plan.lock().take_due(now);
        reads.begin(session, due);
        let next = tracking.plan.lock().next();
        crate::sync::select! {
            () = tracking.wake.notified() => {
                if look_at == Tick::NEVER && tracking.has_young.load(Ordering::Relaxed) {
                    look_at = session.now().after(TRACK_AFTER);
                }
            }
            changed = &mut told => {
                heard(session, &changed);
                told = session.backend.told();
            }
            Some(()) = reads.next() => {}
            () = session.clock.sleep_until(next.min(look_at)) => {}
        }
    }
}

/// Has the holds tracked that have become old. Returns when to look again.
fn look_for_old(session: &Session, now: Tick) -> Tick {
    let tracking = &session.tracking;
    // Before the holds are read: a hold that comes later sets it again.
    tracking.has_young.store(false, Ordering::Relaxed);
    let is_watched = |number| session.watchdog.has(number);
    let mut has_young = false;
    for hold in session.watchdog.untracked() {
        if hold.latest_guard().held_for(now) < TRACK_AFTER {
            has_young = true;
            continue;
        }
        hold.is_tracked.set();
        let name = hold.resource.key.name();
        tracking
            .plan
            .lock()
            .add(name, hold.number(), now, is_watched);
    }
    let mut plan = tracking.plan.lock();
    plan.tidy(is_watched);
    // Under the mutex of the plan, which orders it with the keys that are added.
    tracking.has_old.store(!plan.is_empty(), Ordering::Relaxed);
    drop(plan);
    if has_young {
        tracking.has_young.store(true, Ordering::Relaxed);
        return now.after(TRACK_LOOK);
    }
    // One that came meanwhile has woken the task.
    if tracking.has_young.load(Ordering::Relaxed) {
        now.after(TRACK_LOOK)
    } else {
        Tick::NEVER
    }
}

/// The server has told of changes.
fn heard(session: &Session, told: &Told) {
    let now = session.now();
    let mut plan = session.tracking.plan.lock();
    if told.all {
        plan.change_all(now);
    }
    for name in &told.names {
        plan.change(name, now);
    }
}

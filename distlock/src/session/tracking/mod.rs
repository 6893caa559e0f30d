//! Losses that the server tells at once: which holds it tracks, and what the client does when it tells of a change.
//!
//! How a server tracks keys is in `backend/redis/tracking`, with the reasons. Here is who is tracked: holds that are older than
//! [`TRACK_AFTER`]. A hold that comes and goes before that costs one look at a flag. While there are younger ones, the task
//! looks for those that have become old twice a second, and has many read by one command. What is read next is the [`Plan`]'s
//! to say.
//!
//! A read finds a loss, and never lengthens a lease.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};

use self::plan::{Numbers, Plan};
use super::Session;
use crate::backend::{Home, Target, Told};
use crate::clock::Tick;
use crate::config::{RENEWAL_BATCH, RENEWALS_AT_ONCE, TRACK_AFTER, TRACK_LOOK};
use crate::foreign;
use crate::hold::Hold;
use crate::mutex::Mutex;
use crate::resource::key::Resource;
use crate::resource::kind::Family;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The tracked holds of one client.
#[derive(Debug)]
pub(super) struct Tracking {
    /// Whether the server tells of changes at all.
    is_on: bool,
    /// Whether there may be a hold that is not tracked yet.
    has_young: AtomicBool,
    /// Whether the plan has any key.
    has_old: AtomicBool,
    plan: Mutex<Plan>,
    wake: Notify,
}

/// What is read by one command: keys with the owners that have them.
type Batch = Vec<(Arc<str>, Numbers)>;

impl Tracking {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            has_young: AtomicBool::new(false),
            has_old: AtomicBool::new(false),
            plan: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// A hold was granted.
    pub(super) fn began(&self, resource: &Resource, now: impl FnOnce() -> Tick) {
        // Relaxed, here and below: the task is woken after the change, and reads it then. Read first: a write would move its
        // cache line between cores.
        if self.is_on && !self.has_young.load(Ordering::Relaxed) {
            self.has_young.store(true, Ordering::Relaxed);
            foreign::notify_own_task(&self.wake);
        }
        self.wrote(resource, now);
    }

    /// A hold was granted, or its release is on its way. If others share the key, the server tracks it no more for them.
    pub(super) fn wrote(&self, resource: &Resource, now: impl FnOnce() -> Tick) {
        let is_shared = matches!(resource.kind.family(), Family::ReadWrite | Family::Permit);
        if is_shared
            && self.has_old.load(Ordering::Relaxed)
            && self.plan.lock().wrote(resource.key.name(), now())
        {
            foreign::notify_own_task(&self.wake);
        }
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
    let mut reads = FuturesUnordered::new();
    let mut look_at = Tick::default();
    loop {
        let now = session.now();
        if now >= look_at {
            look_at = look_for_old(session, now);
        }
        while reads.len() < RENEWALS_AT_ONCE
            && let Some(batch) = next_batch(session, now)
        {
            reads.push(read(session, batch));
        }
        let next = tracking.plan.lock().next();
        // A place becomes free with an answer.
        let next = if reads.len() < RENEWALS_AT_ONCE {
            next
        } else {
            Tick::NEVER
        };
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
    tracking.has_young.store(false, Ordering::Relaxed);
    let is_watched = |number| session.watchdog.has(number);
    let mut has_young = false;
    for hold in session.watchdog.holds() {
        if hold.is_tracked() || !hold.resource.kind.has_lease() {
            continue;
        }
        if hold.held_for(now) < TRACK_AFTER {
            has_young = true;
            continue;
        }
        hold.track();
        let name = hold.resource.key.name();
        tracking
            .plan
            .lock()
            .add(name, hold.owner.number(), now, is_watched);
    }
    let mut plan = tracking.plan.lock();
    plan.tidy(is_watched);
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

/// Keys that are due, of which one is read by one command.
fn next_batch(session: &Session, now: Tick) -> Option<Batch> {
    let batch = session.tracking.plan.lock().take_due(now, RENEWAL_BATCH);
    (!batch.is_empty()).then_some(batch)
}

/// Reads keys, and declares the holds lost that are not there any more.
async fn read(session: &Arc<Session>, batch: Batch) {
    let mut homes: BTreeMap<Home, Batch> = BTreeMap::new();
    for (name, numbers) in batch {
        let holds = numbers
            .iter()
            .find_map(|number| session.watchdog.find(*number));
        let home = holds.map_or_else(Home::default, |hold| {
            session.backend.home(&hold.resource.key)
        });
        homes.entry(home).or_default().push((name, numbers));
    }
    let slots = homes.into_values().map(|batch| read_slot(session, batch));
    futures_util::future::join_all(slots).await;
}

/// Reads keys of one slot.
async fn read_slot(session: &Arc<Session>, batch: Batch) {
    let numbers = batch.iter().flat_map(|(_, numbers)| numbers);
    let holds: Vec<Arc<Hold>> = numbers
        .filter_map(|number| session.watchdog.find(*number))
        .collect();
    let mut failed = false;
    for holds in holds.chunks(RENEWAL_BATCH) {
        failed |= !read_holds(session, holds).await;
    }
    let now = session.now();
    let is_watched = |number| session.watchdog.has(number);
    let mut plan = session.tracking.plan.lock();
    for (name, _) in &batch {
        plan.was_read(name, now, failed, is_watched);
    }
}

/// Reads holds by one command. Returns whether the server has answered.
async fn read_holds(session: &Arc<Session>, holds: &[Arc<Hold>]) -> bool {
    let targets: Vec<Target> = holds.iter().map(|hold| hold.target()).collect();
    let epochs: Vec<u64> = holds
        .iter()
        .map(|hold| session.backend.epoch(&hold.resource.key))
        .collect();
    let Ok(ours) = session.backend.track(&targets).await else {
        return false;
    };
    let lost = holds.iter().zip(epochs).zip(ours).filter(|(_, ours)| !ours);
    foreign::each(lost, |((hold, epoch), _)| {
        if let Some(loss) = hold.gone() {
            session.lose_over(hold, loss, epoch);
        }
    });
    true
}

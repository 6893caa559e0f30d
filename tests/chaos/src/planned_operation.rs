//! One operation of a worker, drawn from the seed before it begins.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use distlock_tests::any_lock::LockKind;

/// The rates, durations and keys that the operations of a run are drawn from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Workload {
    /// The kind of lock. A run of the read lock has writers as well.
    pub(super) lock_kind: LockKind,
    /// The watchdog's lease.
    pub(super) lease: Duration,
    /// How long before its end in the server a lease counts as ended.
    pub(super) margin: Duration,
    /// The longest time inside for most operations; one in ten stays up to ten times as long.
    pub(super) work: Duration,
    /// How many operations in a thousand stay for up to two and a half leases.
    pub(super) long: u32,
    /// How many waiters in a thousand are not polled for some time.
    pub(super) unpolled: u32,
    /// How many operations in a thousand have wakers that panic.
    pub(super) panics: u32,
    /// The longest time between two operations.
    pub(super) pause: Duration,
    /// The longest wait.
    pub(super) wait: Duration,
    /// The names of the locks. The first ones are requested most often.
    pub(super) keys: Vec<String>,
}

/// The margin of the clients in the run of this seed, if they have one.
pub(super) fn margin(seed: u64, margin: Duration) -> Duration {
    if seed.is_multiple_of(2) {
        Duration::ZERO
    } else {
        margin
    }
}

/// How many waiters in a thousand are not polled for some time in the run of this seed. None in most: beside such waiters
/// others may wait longer, which hides other mistakes.
pub(super) fn unpolled(seed: u64) -> u32 {
    if seed.is_multiple_of(3) { 8 } else { 0 }
}

/// How many operations in a thousand have wakers that panic, in the run of this seed. None in most: whoever wakes them is cut
/// short, which hides other mistakes.
pub(super) fn panics(seed: u64) -> u32 {
    if seed % 5 == 1 { 50 } else { 0 }
}

/// How the hold is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Awaited, for as long as it takes or up to the wait.
    Await,
    /// One try.
    Try,
}

/// How the section is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Beside the future that reports a loss.
    Watched,
    /// In the guard's scope, which is dropped at a loss.
    Scoped,
    /// In the guard's scope, where the key is entered again.
    Nested,
    /// In the guard's scope, where it panics half-way.
    Panics,
}

/// How the hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// By a release that is awaited.
    Release,
    /// By dropping the guard.
    Drop,
    /// Not at all: its fixed lease has to end it.
    Forget,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct PlannedOperation {
    pub(super) pause: Duration,
    pub(super) lock_kind: LockKind,
    pub(super) key: String,
    pub(super) wait: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) ask: Request,
    pub(super) section: Section,
    pub(super) work: Duration,
    pub(super) leave: Leave,
    /// It is not polled for this time.
    pub(super) unpolled: Option<Duration>,
    /// It is polled so often before that, or until it stands in line.
    pub(super) polls: Option<u32>,
    /// Its waker panics.
    pub(super) panics: bool,
    /// Its future is dropped after this time, wherever it is.
    pub(super) cut: Option<Duration>,
    /// On a latch: counts it down instead of waiting for it.
    pub(super) counts: bool,
    /// Does this instead, or as well.
    pub(super) more: Option<More>,
}

/// What few operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// Waits until the key is free, and acquires nothing.
    UntilFree,
    /// Extends its fixed lease, and stays for longer.
    Extend(Duration),
    /// Detaches its hold at the end. Others attach or release it, and perhaps try so again.
    Detach,
    /// Campaigns for the leader of the key, and resigns after the time of its wait.
    Campaign,
}

impl PlannedOperation {
    /// A wait without limit for this key, a short section and a release.
    pub(super) fn patient(lock_kind: LockKind, key: &str) -> Self {
        Self {
            pause: Duration::ZERO,
            lock_kind,
            key: key.to_owned(),
            wait: None,
            lease: None,
            ask: Request::Await,
            section: Section::Watched,
            work: Duration::from_millis(1),
            leave: Leave::Release,
            unpolled: None,
            polls: None,
            panics: false,
            cut: None,
            counts: false,
            more: None,
        }
    }

    /// Whether it is left unpolled for some time, and whether its waker panics. `random` is not that of the other choices, so that a seed keeps them.
    ///
    /// Not for kinds whose waiters have places in the server, which keeps them for some seconds.
    pub(super) fn or_unpolled(mut self, random: &mut StdRng, workload: &Workload) -> Self {
        let has_no_places = matches!(
            workload.lock_kind,
            LockKind::Reentrant
                | LockKind::NonReentrant
                | LockKind::Spin
                | LockKind::Fenced
                | LockKind::Multi
                | LockKind::Permit
                | LockKind::Semaphore
                | LockKind::Red
        );
        let (is_chosen, time) = (random.random_range(0..1_000), random.random::<f64>());
        let polls = random.random_range(0..6);
        self.polls = (polls > 0).then_some(polls);
        // A panic would end what is around the other ones.
        self.panics = workload.panics > 0 && random.random_range(0..1_000) < workload.panics;
        if has_no_places && is_chosen < workload.unpolled && self.ask == Request::Await {
            self.unpolled = Some((workload.lease * 2).mul_f64(time));
        }
        self
    }

    /// Whether it does more than to acquire and to release. `random` is not that of the other choices, so that a seed keeps them.
    pub(super) fn or_more(mut self, random: &mut StdRng, workload: &Workload) -> Self {
        let (choice, part) = (random.random_range(0..1_000), random.random::<f64>());
        let kind = self.lock_kind;
        // The others have several entries in the servers, or no lease.
        let is_one_entry = matches!(kind, LockKind::Permit) || kind.is_lock_of_one_key();
        self.more = match choice {
            0..50 if kind.is_lock_of_one_key() && self.ask == Request::Await => {
                Some(More::UntilFree)
            }
            // Not beside wakers that panic: they may cut a `detach` short, and its hold then ends with its lease.
            50..110 if is_one_entry && workload.panics == 0 && self.section != Section::Panics => {
                Some(More::Detach)
            }
            110..250 if kind == LockKind::Fenced && self.cut.is_none() => Some(More::Campaign),
            250..600 if self.lease.is_some() && self.leave != Leave::Forget => {
                Some(More::Extend((workload.lease / 2).mul_f64(0.1 + 0.9 * part)))
            }
            _ => None,
        };
        if matches!(self.more, Some(More::UntilFree | More::Campaign)) {
            self.unpolled = None;
            self.panics = false;
        }
        self
    }

    pub(super) fn draw(random: &mut StdRng, workload: &Workload) -> Self {
        let mut up_to = |most: Duration| most.mul_f64(random.random());
        let (pause, wait, cut) = (
            up_to(workload.pause),
            up_to(workload.wait),
            up_to(workload.wait),
        );
        let (work, lease) = (up_to(workload.work), up_to(workload.lease / 8));
        let very_long = up_to(workload.lease * 5 / 2);
        let work = match random.random_range(0..1_000) {
            n if n < workload.long => very_long,
            n if n < 100 => work * 10,
            _ => work,
        };
        let mut chance = |in_hundred| random.random_range(0..100) < in_hundred;
        let (fixed, forget, overrun) = (chance(15), chance(15), chance(40));
        // Only its guard ends a hold without a lease.
        let (fixed, forget) = (
            fixed && workload.lock_kind.has_lease(),
            forget && workload.lock_kind.has_lease(),
        );
        let lease = fixed.then_some(workload.lease / 40 + lease);
        let work = match lease {
            Some(lease) if overrun => lease * 2,
            _ => work,
        };
        let ask = if chance(12) {
            Request::Try
        } else {
            Request::Await
        };
        let section = match random.random_range(0..100) {
            0..50 => Section::Watched,
            50..85 => Section::Scoped,
            85..97 => Section::Nested,
            _ => Section::Panics,
        };
        let mut chance = |in_hundred| random.random_range(0..100) < in_hundred;
        let (bounded, dropped, is_cut) = (chance(75), chance(20), chance(8));
        // The square makes the first keys the busiest.
        let at = random.random::<f64>().powi(2) * workload.keys.len() as f64;
        // Last, so that a seed's other choices are the same for each kind.
        let reads = workload.lock_kind == LockKind::Read && random.random_bool(0.7);
        let counts = workload.lock_kind == LockKind::Latch && random.random_bool(0.6);
        Self {
            pause,
            lock_kind: match workload.lock_kind {
                LockKind::Read if !reads => LockKind::Write,
                lock_kind => lock_kind,
            },
            key: workload.keys[at as usize].clone(),
            // Bounded for what has no lease, since killed processes may have taken all permits for ever, and for latches, since
            // nobody counts them down at the end.
            wait: (bounded
                || !workload.lock_kind.has_lease()
                || workload.lock_kind == LockKind::Latch)
                .then_some(wait),
            lease,
            ask,
            section,
            work,
            leave: match (fixed && forget, dropped) {
                (true, _) => Leave::Forget,
                (_, true) => Leave::Drop,
                _ => Leave::Release,
            },
            unpolled: None,
            polls: None,
            panics: false,
            // A cancelled count-down leaves unknown whether it counted.
            cut: (is_cut && !counts).then_some(cut),
            counts,
            more: None,
        }
    }
}

//! The metrics, by the facade `metrics`. The guide's page `logs_metrics_alerts` has their table.
//!
//! Handles are made once for each recorder, since the look-up in an exporter's registry costs more than a count. An acquisition
//! finds them when it begins, and its hold when it is granted. An exporter may be installed at any time: later acquisitions use
//! its handles. A gauge is lowered through the handle through which it was raised, so that it never falls below zero.
//!
//! A recorder is identified by its address. A new recorder at the address of a freed one is mistaken for it and
//! gets no counts. Only recorders of single threads are ever freed.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::{LazyLock, OnceLock};

use foldhash::fast::RandomState;
use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::labels::{KeyClass, LockType, Outcome};
use crate::error::Loss;
use crate::resource::key::Key;
use crate::sync::{RwLock, foreign};

const ACQUISITIONS: &str = "distlock_acquisitions_total";
const ACQUIRE_WAIT: &str = "distlock_acquire_wait_seconds";
const HOLD_TIME: &str = "distlock_hold_seconds";
const HOLDS: &str = "distlock_holds";
const WAITERS: &str = "distlock_waiters";
const HAND_OVERS: &str = "distlock_hand_overs_total";
const LOSSES: &str = "distlock_losses_total";
const RENEWALS: &str = "distlock_renewals_total";
const RELEASES_PENDING: &str = "distlock_releases_pending";
const CONNECTED: &str = "distlock_connected";
const RECONNECTS: &str = "distlock_reconnects_total";

/// The metrics of one type of lock and one class of keys.
#[derive(Debug)]
pub(super) struct OfType {
    pub(super) acquisitions: [Counter; Outcome::ALL.len()],
    pub(super) wait: Histogram,
    pub(super) hold_time: Histogram,
    pub(super) holds: Gauge,
    pub(super) waiters: Gauge,
    pub(super) hand_overs: Counter,
    losses: [Counter; LOSS_REASONS.len()],
}

/// How a hold can be lost.
const LOSS_REASONS: [Loss; 4] = [
    Loss::Expired,
    Loss::Gone,
    Loss::HeldTooLong,
    Loss::NewIdentity,
];

/// How renewals end.
pub(super) const RENEWAL_OUTCOMES: [&str; 3] = ["renewed", "gone", "failed"];

/// The metrics without a class. They are found without a lock, since each acquisition looks for them.
static WITHOUT_CLASS: [ByRecorder; LockType::NUMBER] =
    [const { ByRecorder::new() }; LockType::NUMBER];

/// The metrics of the classes. Never freed: there are few classes.
static OF_CLASSES: LazyLock<RwLock<OfClasses>> = LazyLock::new(RwLock::default);

type OfClasses = HashMap<(LockType, &'static str), &'static ByRecorder, RandomState>;

/// The metrics of one type and class, as registered in each recorder. A program has one or two recorders: none is installed in
/// the beginning, and then its exporter. Never freed.
#[derive(Debug)]
struct ByRecorder(OnceLock<Box<Registered>>);

#[derive(Debug)]
struct Registered {
    recorder: usize,
    metrics: OfType,
    others: ByRecorder,
}

/// Tells one recorder from another.
fn current_recorder() -> usize {
    metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).cast::<()>().addr())
}

impl ByRecorder {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn get(&self, lock_type: LockType, class: Option<&'static str>) -> &OfType {
        let recorder = current_recorder();
        match self.0.get() {
            Some(first) if first.recorder == recorder => &first.metrics,
            _ => self.find_or_register(recorder, lock_type, class),
        }
    }

    #[cold]
    fn find_or_register(
        &self,
        recorder: usize,
        lock_type: LockType,
        class: Option<&'static str>,
    ) -> &OfType {
        let mut at = self;
        loop {
            match at.0.get() {
                Some(registered) if registered.recorder == recorder => return &registered.metrics,
                Some(of_other) => at = &of_other.others,
                None => {
                    let registered = Registered {
                        recorder,
                        metrics: foreign::register(|| OfType::register(lock_type.name(), class)),
                        others: Self::new(),
                    };
                    // Not inside of `get_or_init`: a recorder may run any code. If another thread was faster, its metrics are
                    // looked at next. To register twice does no harm: an exporter gives both the same numbers.
                    let _faster = at.0.set(Box::new(registered));
                }
            }
        }
    }
}

impl OfType {
    pub(super) fn get(lock_type: LockType, key: &Key, class_of: Option<KeyClass>) -> &'static Self {
        match class_of {
            None => Self::without_class(lock_type),
            Some(class_of) => Self::classified(lock_type, key, class_of),
        }
    }

    fn without_class(lock_type: LockType) -> &'static Self {
        WITHOUT_CLASS[lock_type.index()].get(lock_type, None)
    }

    // Not inlined, so that acquisitions without a class do not make room for it.
    #[inline(never)]
    fn classified(lock_type: LockType, key: &Key, class_of: KeyClass) -> &'static Self {
        // A panic of the user's function must not interrupt an acquisition.
        let Ok(class) = catch_unwind(|| foreign::call_user(|| class_of(key.text()))) else {
            return Self::without_class(lock_type);
        };
        let known = OF_CLASSES.read().get(&(lock_type, class)).copied();
        let by_recorder = known.unwrap_or_else(|| {
            // Another thread may have made it since the read.
            let mut all = OF_CLASSES.write();
            // Leaked, since holds keep a reference. A program has few classes.
            let new = || &*Box::leak(Box::new(ByRecorder::new()));
            all.entry((lock_type, class)).or_insert_with(new)
        });
        by_recorder.get(lock_type, Some(class))
    }

    fn register(kind: &'static str, class: Option<&'static str>) -> Self {
        describe();
        let labels = || {
            let kind = Label::from_static_parts("kind", kind);
            let class = class.map(|class| Label::from_static_parts("key_class", class));
            [kind].into_iter().chain(class)
        };
        let with = |name, value| -> Vec<Label> {
            let more = Label::from_static_parts(name, value);
            labels().chain([more]).collect()
        };
        let plain = || -> Vec<Label> { labels().collect() };
        // All from the start, so that the first increase of each is seen.
        for outcome in RENEWAL_OUTCOMES {
            let _registered = counter!(RENEWALS, "outcome" => outcome);
        }
        let _registered = gauge!(RELEASES_PENDING);
        let of_outcome = |outcome: Outcome| counter!(ACQUISITIONS, with("outcome", outcome.name()));
        Self {
            acquisitions: Outcome::ALL.map(of_outcome),
            wait: histogram!(ACQUIRE_WAIT, plain()),
            hold_time: histogram!(HOLD_TIME, plain()),
            holds: gauge!(HOLDS, plain()),
            waiters: gauge!(WAITERS, plain()),
            hand_overs: counter!(HAND_OVERS, plain()),
            losses: LOSS_REASONS.map(|loss| counter!(LOSSES, with("reason", loss.name()))),
        }
    }

    /// Counts a loss. A number that is gone ends waits and no holds.
    pub(super) fn lost(&self, loss: Loss) {
        let reasons = LOSS_REASONS.iter().zip(&self.losses);
        for (_, losses) in reasons.filter(|(reason, _)| **reason == loss) {
            losses.increment(1);
        }
    }
}

fn describe() {
    describe_counter!(
        ACQUISITIONS,
        Unit::Count,
        "Acquisitions that asked the server or waited"
    );
    describe_histogram!(
        ACQUIRE_WAIT,
        Unit::Seconds,
        "Time from the start of an acquisition to its end"
    );
    describe_histogram!(
        HOLD_TIME,
        Unit::Seconds,
        "Time for which a guard held its key"
    );
    describe_gauge!(HOLDS, Unit::Count, "Holds of this process");
    describe_gauge!(
        WAITERS,
        Unit::Count,
        "Acquisitions of this process that wait"
    );
    describe_counter!(
        HAND_OVERS,
        Unit::Count,
        "Holds that went to the next waiter without the server"
    );
    describe_counter!(LOSSES, Unit::Count, "Holds that ended before their release");
    describe_counter!(RENEWALS, Unit::Count, "Leases that were to be renewed");
    describe_gauge!(
        RELEASES_PENDING,
        Unit::Count,
        "Releases in the background that failed and are tried again"
    );
    describe_gauge!(
        CONNECTED,
        Unit::Count,
        "1 while connected to the server, 0 in an outage"
    );
    describe_counter!(
        RECONNECTS,
        Unit::Count,
        "Outages of connections that are over"
    );
}

/// Counts renewals by their outcome.
pub(super) fn renewals(outcome: &'static str, number: usize) {
    if number > 0 {
        foreign::count(|| counter!(RENEWALS, "outcome" => outcome).increment(number as u64));
    }
}

/// The gauge of pending releases, raised by one.
pub(super) fn one_release_pending() -> Gauge {
    let mut pending = Gauge::noop();
    foreign::count(|| {
        pending = gauge!(RELEASES_PENDING);
        pending.increment(1);
    });
    pending
}

/// One release is not pending any more; `gauge` was raised for it.
pub(super) fn one_release_less(gauge: &Gauge) {
    foreign::count(|| gauge.decrement(1.0));
}

#[cfg(feature = "redis")]
pub(super) fn connected(server: &str, is_connected: bool) {
    foreign::count(|| {
        gauge!(CONNECTED, "server" => server.to_owned()).set(f64::from(u8::from(is_connected)));
        // Registered from the start, so that its first increase is seen.
        counter!(RECONNECTS, "server" => server.to_owned()).increment(0);
    });
}

#[cfg(feature = "redis")]
pub(super) fn reconnected(server: &str) {
    foreign::count(|| counter!(RECONNECTS, "server" => server.to_owned()).increment(1));
}

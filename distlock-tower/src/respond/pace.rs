//! When a refused request should come back: how long the holds of a layer last, and `Retry-After`.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::Blocker;

/// The bounds of `Retry-After` in seconds for a busy lock.
const RETRY_AFTER_BUSY: (u64, u64) = (1, 10);

/// A request that stood behind others in line gets its `Retry-After` divided by this in addition, or less, at random.
/// Otherwise all of them would come back together.
const RETRY_AFTER_SPREAD: u64 = 2;

/// The number of usual holds after which a client should ask again for a busy lock.
const HOLDS_UNTIL_RETRY: u32 = 2;

/// The rest of a lease that a watchdog renews is between this part of the watchdog's timeout and the whole of it. It is
/// renewed at two thirds; a half leaves time for late renewals.
const RENEWED_LEASE_PARTS: u32 = 2;

/// What the clients of the lock server use by default, and so what an error from outside a layer is judged by.
const DEFAULT_WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// How many holds a layer remembers. Few, because traffic changes.
const REMEMBERED: usize = 15;

/// How long the last holds of a layer took, over all its keys.
#[derive(Default)]
pub(crate) struct LastHolds {
    /// In milliseconds and one more, because 0 means none.
    millis: [AtomicU32; REMEMBERED],
    next: AtomicUsize,
}

impl LastHolds {
    pub(crate) fn add(&self, held: Duration) {
        // Relaxed, here and below: the durations are a sample, and a slot that is overwritten or read a moment too late changes
        // only an estimate.
        let at = self.next.fetch_add(1, Ordering::Relaxed) % REMEMBERED;
        let millis = u32::try_from(held.as_millis()).unwrap_or(u32::MAX - 1);
        if let Some(slot) = self.millis.get(at) {
            slot.store(millis.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// `None` before the first hold has ended.
    fn median(&self) -> Option<Duration> {
        let seen = self.millis.iter().map(|slot| slot.load(Ordering::Relaxed));
        let mut seen: Vec<_> = seen.filter(|millis| *millis > 0).collect();
        seen.sort_unstable();
        let middle = seen.get(seen.len().saturating_sub(1) / 2)?;
        Some(Duration::from_millis(u64::from(middle - 1)))
    }
}

/// What is known about the time for which a lock stays busy.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Whether the layer's own holds have a fixed lease.
    pub(crate) has_lease: bool,
    pub(crate) watchdog_timeout: Duration,
    /// The median of the layer's last holds, and at least the time for which the layer keeps each key.
    usual_hold: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            has_lease: false,
            watchdog_timeout: DEFAULT_WATCHDOG_TIMEOUT,
            usual_hold: None,
        }
    }
}

impl Pace {
    pub(crate) fn new(
        has_lease: bool,
        watchdog_timeout: Duration,
        hold_at_least: Duration,
        holds: &LastHolds,
    ) -> Self {
        let least = Some(hold_at_least).filter(|least| !least.is_zero());
        Self {
            has_lease,
            watchdog_timeout,
            usual_hold: holds.median().max(least),
        }
    }

    /// `Retry-After` in seconds for a busy lock.
    pub(super) fn retry_after(self, blocker: Blocker) -> u64 {
        match blocker {
            Blocker::Owner(left) => self.after(left),
            Blocker::Queue(heard) => {
                let after = self.after(heard);
                after + fastrand::u64(0..=after.div_ceil(RETRY_AFTER_SPREAD))
            }
            _ => RETRY_AFTER_BUSY.0,
        }
    }

    /// After the rest of the holder's lease, if it is fixed. If it is renewed, its rest says nothing about the end of the
    /// hold, and the last holds of the layer do.
    fn after(self, left: Option<Duration>) -> u64 {
        let (least, most) = RETRY_AFTER_BUSY;
        let expected = match left.filter(|left| self.is_fixed(*left)) {
            Some(left) => Some(left),
            None => self.usual_hold.map(|hold| hold * HOLDS_UNTIL_RETRY),
        };
        expected.map_or(least, |expected| ceil_secs(expected).clamp(least, most))
    }

    fn is_fixed(self, left: Duration) -> bool {
        let least_renewed = self.watchdog_timeout / RENEWED_LEASE_PARTS;
        self.has_lease || left < least_renewed || left > self.watchdog_timeout
    }
}

fn ceil_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

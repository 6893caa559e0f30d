//! Points in time on one clock.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};

/// A point in time on one clock, counted from that clock's own start in nanoseconds: a hold has a dozen of them, and a
/// `Duration` takes twice the bytes. The number is larger by 1, so that an `Option` takes no more bytes.
#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(NonZeroU64);

#[cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, reason = "only the tests' crate names it")
)]
impl Tick {
    /// Later than every deadline.
    pub(crate) const NEVER: Self = Self(NonZeroU64::MAX);

    /// The point so many nanoseconds after the start of the clock.
    pub(super) fn at(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    fn nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns this point; `None` if it is [`NEVER`](Tick::NEVER), which takes no more bytes than a point.
    pub(crate) fn unless_never(self) -> Option<Self> {
        (self != Self::NEVER).then_some(self)
    }

    /// Returns the point that is `by` later.
    pub fn after(self, by: Duration) -> Self {
        // Saturates, so that what never ends stays so.
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the point that is `by` earlier, but not before the start of the clock.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self::at(self.nanos().saturating_sub(nanos(by)))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later than this point.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()))
    }

    /// Returns the time from `now` until this point; zero if it has passed.
    pub(crate) fn left(self, now: Self) -> Duration {
        self.since(now)
    }

    /// Returns this point, or the next one that is a whole millisecond: tokio's timers fire at no other.
    pub(crate) fn to_whole_millis(self) -> Self {
        let whole = self.nanos().checked_next_multiple_of(NANOS_PER_MILLI);
        whole.map_or(Self::NEVER, Self::at)
    }

    #[cfg(test)]
    pub(crate) fn from_millis(ms: u64) -> Self {
        Self::at(ms * NANOS_PER_MILLI)
    }
}

impl Default for Tick {
    /// The start of the clock.
    fn default() -> Self {
        Self::at(0)
    }
}

/// A point in time that changes. Nothing else is published with it.
#[derive(Debug)]
pub(crate) struct AtomicTick(AtomicU64);

impl AtomicTick {
    pub(crate) fn new(tick: Tick) -> Self {
        Self(AtomicU64::new(tick.nanos()))
    }

    pub(crate) fn get(&self) -> Tick {
        // Relaxed, here and below: what depends on more than this time is read under a mutex.
        Tick::at(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, tick: Tick) {
        self.0.store(tick.nanos(), Ordering::Relaxed);
    }

    /// Makes it this time, unless it is as early already. Returns whether it was later.
    pub(crate) fn lower_to(&self, tick: Tick) -> bool {
        // Read first: a write would move its cache line between cores.
        tick < self.get() && self.0.fetch_min(tick.nanos(), Ordering::Relaxed) > tick.nanos()
    }

    /// Makes it [`Tick::NEVER`], unless it is later than `now`. Returns whether it was not later.
    pub(crate) fn take_by(&self, now: Tick) -> bool {
        let taken = |at| (at <= now.nanos()).then_some(Tick::NEVER.nanos());
        // In one step: of two threads that find it due, one takes it.
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        taken.is_ok()
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

/// In nanoseconds. What is longer than five centuries counts as that.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_tick_is_lowered_by_earlier_times_alone_and_taken_once_it_has_come() {
        let planned = AtomicTick::new(Tick::NEVER);
        let (early, late) = (Tick::from_millis(1), Tick::from_millis(2));
        assert!(!planned.take_by(late));
        assert!(planned.lower_to(late) && planned.lower_to(early));
        assert!(!planned.lower_to(early) && !planned.lower_to(late));
        assert_eq!(planned.get(), early);
        assert!(!planned.take_by(Tick::default()));
        assert!(planned.take_by(early) && !planned.take_by(late));
        assert_eq!(planned.get(), Tick::NEVER);
    }
}

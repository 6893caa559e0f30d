//! Random numbers for pauses. An explored run that is played again draws the same ones.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

/// A number from 0 to 1, without 1.
#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) fn random() -> f64 {
    fastrand::f64()
}

/// A number from 0 to 1, without 1.
#[cfg(all(test, distlock_shuttle))]
pub(crate) fn random() -> f64 {
    use shuttle::rand::{RngCore, thread_rng};
    f64::from(thread_rng().next_u32()) / (f64::from(u32::MAX) + 1.0)
}

/// A number in a range that has bounds. The upper one is not drawn.
pub(crate) fn random_range(range: impl RangeBounds<f64>) -> f64 {
    let end_of = |bound: Bound<&f64>| match bound {
        Bound::Included(&end) | Bound::Excluded(&end) => end,
        Bound::Unbounded => 0.0,
    };
    let start = end_of(range.start_bound());
    let end = end_of(range.end_bound());
    start + (end - start) * random()
}

/// The next of some growing pauses: a random part of `pause`, at least half of it, so that those who began together do not go on
/// together. `pause` is twice as long after that, but not longer than the longest one.
pub(crate) fn growing_pause(pause: &mut Duration, longest: Duration) -> Duration {
    let next = pause.mul_f64(random_range(0.5..1.0));
    *pause = (*pause * 2).min(longest);
    next
}

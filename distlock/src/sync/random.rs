//! Random numbers for pauses. An explored run that is played again draws the same ones.

use std::ops::{Bound, RangeBounds};

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

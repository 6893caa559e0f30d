//! Random numbers for pauses. An explored run that is played again draws the same ones.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use rand::{random, random_range};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{random, random_range};

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use std::ops::{Bound, RangeBounds};

    use shuttle::rand::{RngCore, thread_rng};

    pub(crate) fn random() -> f64 {
        f64::from(thread_rng().next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    pub(crate) fn random_range(range: impl RangeBounds<f64>) -> f64 {
        let end_of = |bound| match bound {
            Bound::Included(&end) | Bound::Excluded(&end) => end,
            Bound::Unbounded => unreachable!("a pause has bounds"),
        };
        let (start, end) = (end_of(range.start_bound()), end_of(range.end_bound()));
        start + (end - start) * random()
    }
}

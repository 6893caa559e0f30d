//! What the rooms count. Without the feature `metrics` these types are empty, and their methods do nothing.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, reason = "nothing is counted")
)]

use std::fmt;
use std::time::Duration;

use super::labels::{KeyClass, LockType, Outcome};
#[cfg(feature = "metrics")]
use super::metrics;
use crate::error::Loss;
use crate::resource::key::Key;
#[cfg(feature = "metrics")]
use crate::sync::foreign;

/// Counts for one type of lock, and for the class of one key.
#[derive(Clone, Copy)]
pub(crate) struct Meter(#[cfg(feature = "metrics")] Option<&'static metrics::OfType>);

impl Meter {
    /// Whether anything is counted.
    pub(crate) const COUNTS: bool = cfg!(feature = "metrics");

    pub(crate) fn new(lock_type: LockType, key: &Key, class_of: Option<KeyClass>) -> Self {
        Self(
            #[cfg(feature = "metrics")]
            Some(metrics::OfType::get(lock_type, key, class_of)),
        )
    }

    /// Counts nothing.
    pub(crate) fn none() -> Self {
        Self(
            #[cfg(feature = "metrics")]
            None,
        )
    }

    #[cfg(feature = "metrics")]
    fn count(self, count: impl FnOnce(&'static metrics::OfType)) {
        if let Some(metrics) = self.0 {
            foreign::count(|| count(metrics));
        }
    }

    /// An acquisition ended after `waited`.
    pub(crate) fn acquired(self, outcome: Outcome, waited: Duration) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| {
            metrics.acquisitions[outcome as usize].increment(1);
            metrics.wait.record(waited);
        });
    }

    pub(crate) fn hold_began(self) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.holds.increment(1.0));
    }

    pub(crate) fn hold_ended(self) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.holds.increment(-1.0));
    }

    /// A guard had a hold for this long.
    pub(crate) fn held(self, held: Duration) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.hold_time.record(held));
    }

    pub(crate) fn handed_over(self) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.hand_overs.increment(1));
    }

    pub(crate) fn lost(self, loss: Loss) {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.lost(loss));
    }

    /// Counts one more waiter, until the result is dropped.
    pub(crate) fn waiter(self) -> CountedWaiter {
        #[cfg(feature = "metrics")]
        self.count(|metrics| metrics.waiters.increment(1.0));
        CountedWaiter(self)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

#[derive(Debug)]
pub(crate) struct CountedWaiter(Meter);

#[cfg(feature = "metrics")]
impl Drop for CountedWaiter {
    fn drop(&mut self) {
        self.0.count(|metrics| metrics.waiters.increment(-1.0));
    }
}

/// A release that has failed and is tried again. It is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedRelease(#[cfg(feature = "metrics")] ::metrics::Gauge);

impl CountedRelease {
    pub(crate) fn new() -> Self {
        Self(
            #[cfg(feature = "metrics")]
            metrics::one_release_pending(),
        )
    }
}

#[cfg(feature = "metrics")]
impl Drop for CountedRelease {
    fn drop(&mut self) {
        metrics::one_release_less(&self.0);
    }
}

/// Counts renewals that were answered or not.
pub(crate) fn renewals(renewed: usize, gone: usize, failed: usize) {
    #[cfg(feature = "metrics")]
    for (outcome, number) in metrics::RENEWAL_OUTCOMES
        .into_iter()
        .zip([renewed, gone, failed])
    {
        metrics::renewals(outcome, number);
    }
}

#[cfg(feature = "redis")]
pub(crate) fn note_connected(server: &str, is_connected: bool) {
    #[cfg(feature = "metrics")]
    metrics::connected(server, is_connected);
}

/// Notes that the client is connected to this server again after an outage.
#[cfg(feature = "redis")]
pub(crate) fn note_reconnected(server: &str) {
    #[cfg(feature = "metrics")]
    metrics::reconnected(server);
}

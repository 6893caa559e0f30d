//! The clock of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_tests::pulse::monotonic_nanos;
use tokio::time::Instant;

use crate::history::Timestamp;

/// Where timestamps come from.
#[derive(Clone, Debug)]
pub(super) enum Time {
    /// The machine's clock: one for all processes.
    Machine,
    /// Tokio's, paused.
    Paused {
        /// Where it began.
        base: Instant,
        /// The last timestamp. Events at one moment of paused time keep their order by it.
        last: Arc<AtomicU64>,
    },
}

impl Time {
    /// Tokio's paused time, from now on.
    #[must_use]
    pub(super) fn paused() -> Self {
        Self::Paused {
            base: Instant::now(),
            last: Arc::default(),
        }
    }

    /// A timestamp for an event that happens now.
    #[must_use]
    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::Machine => self.clock(),
            Self::Paused { last, .. } => {
                let now = self.clock().max(last.load(Ordering::Relaxed) + 1);
                last.store(now, Ordering::Relaxed);
                now
            }
        }
    }

    /// The time on the clock.
    #[must_use]
    pub(super) fn clock(&self) -> Timestamp {
        match self {
            Self::Machine => monotonic_nanos(),
            Self::Paused { base, .. } => timestamp(base.elapsed()),
        }
    }
}

/// A duration in nanoseconds.
#[must_use]
pub(super) fn timestamp(duration: Duration) -> Timestamp {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! The clock of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_tests::pulse::monotonic_nanos;
use tokio::time::Instant;

use crate::history::Timestamp;

/// Where stamps come from.
#[derive(Clone, Debug)]
pub(super) enum Time {
    /// The machine's clock: one for all processes.
    Machine,
    /// Tokio's, paused.
    Paused {
        /// Where it began.
        base: Instant,
        /// What was told last. What happens at one moment of paused time has an order all the same.
        last: Arc<AtomicU64>,
    },
}

impl Time {
    /// Tokio's time from now on.
    #[must_use]
    pub(super) fn paused() -> Self {
        Self::Paused {
            base: Instant::now(),
            last: Arc::default(),
        }
    }

    /// A stamp for what happens now.
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

    /// What the clock shows.
    #[must_use]
    pub(super) fn clock(&self) -> Timestamp {
        match self {
            Self::Machine => monotonic_nanos(),
            Self::Paused { base, .. } => timestamp(base.elapsed()),
        }
    }
}

/// A duration in stamps.
#[must_use]
pub(super) fn timestamp(duration: Duration) -> Timestamp {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

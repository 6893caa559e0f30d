//! The times of the console, in milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since 1970.
pub(super) type Millis = u64;

/// The time of day, counted on from the start of the console. It does not jump when somebody sets the clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    start_millis: Millis,
}

impl Clock {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            start: Instant::now(),
            start_millis: since.map_or(0, |since| millis(since.as_millis())),
        }
    }

    pub(super) fn now(&self) -> Millis {
        self.start_millis
            .saturating_add(millis(self.start.elapsed().as_millis()))
    }
}

pub(super) fn millis(millis: u128) -> Millis {
    millis.try_into().unwrap_or(Millis::MAX)
}

//! Pauses that grow.

use std::time::Duration;

/// Pauses between attempts: each is twice as long as the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

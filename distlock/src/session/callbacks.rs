//! The way up from a session to the registry above it.

use std::fmt;
use std::sync::Arc;

use crate::clock::Tick;
use crate::hold::Hold;

/// What a session asks of the registry above it: it checks the waiters, and learns that a hold is over.
pub(crate) trait Callbacks: fmt::Debug + Send + Sync {
    /// Records that a hold of this client is over. `others`: how many other clients heard of it, if the server said so.
    fn freed(&self, hold: &Hold, others: Option<u32>);

    /// Checks that the first waiters are still polled. Returns whether another check is needed.
    fn check_heads(self: Arc<Self>) -> bool;

    /// Logs the waits that have become long. Returns when to look at them again.
    fn log_long_waits(self: Arc<Self>) -> Tick;
}

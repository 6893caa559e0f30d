//! When a verb runs, and for which client.

use crate::clock::Tick;

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: u64,
    pub(super) now: Tick,
    /// Until when the server remembers that this request took effect.
    pub(super) remember_until: Tick,
    /// Until when it refuses an owner whose attempt was withdrawn.
    pub(super) ended_until: Tick,
    /// Until when it remembers that a latch was opened.
    pub(super) opened_until: Tick,
}

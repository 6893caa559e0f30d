//! Changes of semaphores and latches.

use std::time::Duration;

use crate::permit_id::PermitId;

/// A change of a semaphore or a latch, or a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the number where there is none: 1 if it was set, else 0.
    TrySet(u32),
    /// Adds to the number: what it is now.
    Add(i32),
    /// Takes all permits: how many they were.
    Drain,
    /// Counts a latch down by one: what is left.
    CountDown,
    /// The number, 0 where there is none.
    Count,
    /// Sets how many permits there are, out or not: how many are free now.
    SetPermits(u32),
    /// How many permits are out.
    AcquiredPermits,
    /// How many permits there are, out or not.
    TotalPermits,
    /// Gives back one permit, whoever has it: 1 if it was out, else 0.
    ReleasePermit(PermitId),
    /// Gives one permit a new lease: 1 if it was out, else 0.
    UpdateLease(PermitId, Duration),
    /// The milliseconds that one permit has left; -1 where it has no end, -2 where it is not out.
    RemainingLease(PermitId),
}

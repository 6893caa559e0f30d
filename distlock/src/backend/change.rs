//! What can be asked about, or done to, the number of a semaphore or a latch.

use std::time::Duration;

use crate::resource::permit_id::PermitId;

/// A change of a semaphore or a latch, or a question about it. Each family of kinds has a separate type, so that none
/// can be asked for what it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a plain semaphore.
    Semaphore(SemaphoreChange),
    /// Of a permit-expirable semaphore.
    Permit(PermitChange),
    /// Of a count-down latch.
    Latch(LatchChange),
}

impl Change {
    /// Whether it changes nothing. The server does not remember a question.
    pub(crate) fn is_question(self) -> bool {
        matches!(
            self,
            Self::Semaphore(SemaphoreChange::Count)
                | Self::Latch(LatchChange::Count)
                | Self::Permit(
                    PermitChange::Count
                        | PermitChange::AcquiredPermits
                        | PermitChange::TotalPermits
                        | PermitChange::RemainingLease(_)
                )
        )
    }
}

/// A change of a plain semaphore, or a question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SemaphoreChange {
    /// Sets the number of permits if there is none. Answers 1 if it was set, 0 otherwise.
    TrySet(u32),
    /// Adds to the number of permits, and answers the sum.
    Add(i32),
    /// Takes all free permits, and answers how many there were.
    Drain,
    /// Answers the number of free permits, 0 if none was set.
    Count,
}

/// A change of a permit-expirable semaphore, or a question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitChange {
    /// Sets the number of permits if there is none. Answers 1 if it was set, 0 otherwise.
    TrySet(u32),
    /// Sets the number of free and acquired permits together, and answers how many are free now.
    SetPermits(u32),
    /// Adds to the number of free permits, and answers the sum.
    Add(i32),
    /// Takes one permit back from its owner. Answers 1 if it was acquired, 0 otherwise.
    ReleasePermit(PermitId),
    /// Gives one permit a new lease from now on, shorter or longer. Answers 1 if it was acquired, 0 otherwise.
    UpdateLease(PermitId, Duration),
    /// Answers the number of free permits, 0 if none was set.
    Count,
    /// Answers the number of acquired permits.
    AcquiredPermits,
    /// Answers the number of free and acquired permits together.
    TotalPermits,
    /// Answers the milliseconds left of one permit's lease: -1 if it never ends, -2 if the permit is not acquired.
    RemainingLease(PermitId),
}

/// A change of a count-down latch, or a question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchChange {
    /// Sets the count if there is none. Answers 1 if it was set, 0 otherwise.
    TrySet(u32),
    /// Counts down by one, and answers what is left.
    CountDown,
    /// Answers the count, 0 if there is none.
    Count,
}

impl From<SemaphoreChange> for Change {
    fn from(change: SemaphoreChange) -> Self {
        Self::Semaphore(change)
    }
}

impl From<PermitChange> for Change {
    fn from(change: PermitChange) -> Self {
        Self::Permit(change)
    }
}

impl From<LatchChange> for Change {
    fn from(change: LatchChange) -> Self {
        Self::Latch(change)
    }
}

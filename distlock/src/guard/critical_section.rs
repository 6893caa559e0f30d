//! A critical section, from the grant to the end of its release. `run`, the attribute and held streams use it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::error::Error;
use crate::guard::Guard;
use crate::scope::Section;

/// A release under way.
type Releasing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The states of a critical section.
pub(crate) enum CriticalSection {
    /// Code runs inside.
    ///
    /// The fields are dropped in this order: the section before the guard. Its frame closes first, so that no
    /// acquisition re-enters a hold whose guard is about to end.
    Running { section: Section, guard: Guard },
    /// The guard is being released.
    Releasing(Releasing),
    /// The guard has ended.
    Done,
}

impl CriticalSection {
    pub(crate) fn new(guard: Guard) -> Self {
        let section = guard.section();
        Self::Running { section, guard }
    }

    /// The guard, while code runs inside.
    pub(crate) fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Running { guard, .. } => Some(guard),
            Self::Releasing(_) | Self::Done => None,
        }
    }

    /// Calls `run` inside the section, or just calls it once the section has ended.
    pub(crate) fn enter<R>(&mut self, run: impl FnOnce() -> R) -> R {
        match self {
            Self::Running { section, .. } => section.enter(run),
            Self::Releasing(_) | Self::Done => run(),
        }
    }

    /// Begins to release the guard. The section ends first.
    pub(crate) fn start_release(&mut self) {
        if let Self::Running { section, guard } = std::mem::replace(self, Self::Done) {
            // Before the release is made: nothing may nest into a guard that is being released.
            drop(section);
            *self = Self::Releasing(Box::pin(guard.release()));
        }
    }

    /// Ends the section and drops the guard. If the server still has the hold, it is released in the background.
    pub(crate) fn abandon(&mut self) {
        *self = Self::Done;
    }

    /// Completes when the release that [`start_release`](CriticalSection::start_release) began is confirmed or has
    /// failed, and at once if none is under way.
    pub(crate) fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self::Releasing(releasing) = self else {
            return Poll::Ready(Ok(()));
        };
        let released = ready!(releasing.as_mut().poll(cx));
        *self = Self::Done;
        Poll::Ready(released)
    }
}

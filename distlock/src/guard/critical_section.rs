//! A critical section from the grant to the end of its release: what `run`, the attribute and held streams share.

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
    /// The fields are dropped in this order. The section goes before the guard: its frame closes first, so that nothing can
    /// nest into a hold whose guard is just ending.
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

    /// Runs `run` inside the section, or as it is once the section has ended.
    pub(crate) fn enter<R>(&mut self, run: impl FnOnce() -> R) -> R {
        match self {
            Self::Running { section, .. } => section.enter(run),
            Self::Releasing(_) | Self::Done => run(),
        }
    }

    /// Begins to release the guard. The section ends first.
    pub(crate) fn start_release(&mut self) {
        if let Self::Running { section, guard } = std::mem::replace(self, Self::Done) {
            drop(section);
            *self = Self::Releasing(Box::pin(guard.release()));
        }
    }

    /// Ends the section and drops the guard, which leaves what remains of the hold to the background.
    pub(crate) fn abandon(&mut self) {
        *self = Self::Done;
    }

    /// Polls the release that [`start_release`](CriticalSection::start_release) began.
    pub(crate) fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self::Releasing(releasing) = self else {
            return Poll::Pending;
        };
        let released = ready!(releasing.as_mut().poll(cx));
        *self = Self::Done;
        Poll::Ready(released)
    }
}

//! The hold of one request, from its grant until its release is confirmed.
//!
//! The handler's future and the response body share this state machine: both run inside the section, and both wait for
//! the release before they pass their last result on.
//!
//! # Invariants
//! 1. The section is dropped before the guard, whichever way the hold ends.
//! 2. A guard that the handler took with [`Held::keep`] is neither released nor dropped here.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use distlock::{Error, Guard, Section};
use futures_core::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Held;
use crate::request_body::{BodyClock, BodyTimeout};
use crate::respond::LastHolds;

/// The layer's side of a hold. Dropping it releases the lock in the background, unless the handler kept the guard.
pub(crate) struct RequestHold {
    state: State,
    /// Bounds the time that the request's body takes. Stopped when the section is closed.
    body_clock: Option<Arc<BodyClock>>,
    granted: Instant,
    /// Those of the layer. This hold is added when it ends, unless the handler keeps it.
    last_holds: Arc<LastHolds>,
}

/// Why code inside the section must not run on.
pub(crate) enum Interruption {
    Lost(Error),
    BodyTimeout(BodyTimeout),
}

enum State {
    /// The handler or the response body runs inside the section. The guard is in the slot of the `Held`.
    Running(Section, Held),
    /// The section is closed, and the release is not confirmed yet.
    Releasing(BoxFuture<'static, Result<(), Error>>),
    /// Nothing is left to release: the hold was released or lost, or the handler kept the guard.
    Done,
}

impl RequestHold {
    /// Takes over a guard that was granted at `granted`. The [`Held`] is the handler's view of the same hold.
    pub(crate) fn new(
        guard: Guard,
        granted: Instant,
        body_clock: Option<Arc<BodyClock>>,
        last_holds: Arc<LastHolds>,
    ) -> (Held, Self) {
        let section = guard.section();
        let held = Held::new(guard);
        let hold = Self {
            state: State::Running(section, held.clone()),
            body_clock,
            granted,
            last_holds,
        };
        (held, hold)
    }

    /// Runs a function inside the section, or just runs it once the section is closed.
    pub(crate) fn enter<R>(&mut self, run: impl FnOnce() -> R) -> R {
        match &mut self.state {
            State::Running(section, _) => section.enter(run),
            State::Releasing(_) | State::Done => run(),
        }
    }

    /// Polls something inside the section, unless the hold is lost or the request's body has taken too long. Just polls
    /// it once the section is closed.
    pub(crate) fn poll_in<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<Result<R, Interruption>> {
        let State::Running(section, _) = &mut self.state else {
            return poll(cx).map(Ok);
        };
        let polled = match self.body_clock.as_ref().map(|clock| clock.poll_expired(cx)) {
            // The body was read by another task.
            Some(Poll::Ready(())) => Poll::Pending,
            _ => section.poll_in(cx, poll),
        };
        // Also after the poll, which may have read the body. What it has completed with is the outcome of a cut body.
        match &self.body_clock {
            Some(clock) if clock.poll_expired(cx).is_ready() => {
                let limit = clock.limit();
                Poll::Ready(Err(Interruption::BodyTimeout(BodyTimeout { limit })))
            }
            _ => polled.map_err(Interruption::Lost),
        }
    }

    /// The keys, while the section is open.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let held = match &self.state {
            State::Running(_, held) => Some(held),
            State::Releasing(_) | State::Done => None,
        };
        held.into_iter().flat_map(Held::keys)
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(..))
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Closes the section and starts to release the guard, if the handler did not keep it.
    pub(crate) fn begin_release(&mut self) {
        if let Some(guard) = self.close() {
            self.state = State::Releasing(Box::pin(guard.release()));
        }
    }

    /// Completes when the release is confirmed or has failed, and at once if there is nothing to release.
    ///
    /// Outside a runtime, where nothing can wait for an answer, the release is left to the background. A body that has
    /// arrived may be read there.
    pub(crate) fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let State::Releasing(releasing) = &mut self.state else {
            return Poll::Ready(Ok(()));
        };
        if Handle::try_current().is_err() {
            self.state = State::Done;
            return Poll::Ready(Ok(()));
        }
        let released = ready!(releasing.as_mut().poll(cx));
        self.state = State::Done;
        Poll::Ready(released)
    }

    /// Closes the section. If the handler did not keep the guard, drops it, which releases the lock in the background.
    pub(crate) fn release_in_background(&mut self) {
        drop(self.close());
    }

    /// Closes the section, and then takes the guard out of its slot.
    fn close(&mut self) -> Option<Guard> {
        let State::Running(section, held) = mem::replace(&mut self.state, State::Done) else {
            return None;
        };
        if let Some(clock) = &self.body_clock {
            clock.stop();
        }
        // The section goes first. Code that still has the scope, such as a task that inherited it, must not re-enter a
        // hold whose guard is about to end.
        drop(section);
        // Clones of `held` that the handler kept share the slot. If this one were only dropped, they would keep the
        // guard alive.
        let guard = held.keep();
        // A hold that the handler kept goes on for an unknown time.
        if guard.is_some() {
            self.last_holds.add(self.granted.elapsed());
        }
        guard
    }
}

impl Drop for RequestHold {
    fn drop(&mut self) {
        self.release_in_background();
    }
}

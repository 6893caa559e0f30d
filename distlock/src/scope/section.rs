//! The critical section of a guard as an owned value, which the future of a scope and the middleware of others enter.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::frames::{EnclosingScope, Frames, frames, within};
use crate::error::Error;
use crate::hold::HoldView;

/// The critical section of a guard as an owned value, for authors of middleware.
///
/// [`Guard::scope`](crate::Guard::scope) borrows the guard, so a struct cannot store both. A section does not borrow: store it
/// beside the guard, and enter it around every piece of code that belongs to the critical section, such as a call, a future
/// or a body. Code inside the section re-enters the guard's hold. The section ends when it is dropped, and the hold ends with
/// its guard.
///
/// Drop the section before the guard, so that no acquisition re-enters a hold that is about to end.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::future::poll_fn;
/// use std::pin::pin;
///
/// let client = distlock::Client::in_memory();
/// let lock = client.lock("order:42");
/// let guard = lock.acquire().await?;
/// let mut section = guard.section();
/// let mut body = pin!(async { lock.try_acquire().await.map(|again| again.is_some()) });
/// let entered = poll_fn(|cx| section.poll_in(cx, |cx| body.as_mut().poll(cx))).await??;
/// assert!(entered && section.is_held());
/// guard.release().await?;
/// section.lost().await;
/// assert!(!section.is_held());
/// # Ok(()) }
/// ```
pub struct Section {
    pub(super) view: HoldView,
    /// The frames of this section. They are made when the section is first entered, inside the frames that are active
    /// then.
    frames: Frames,
    /// Wakes the task when the guard no longer holds the key. Made when a poll is pending for the first time: many bodies are ready
    /// at once. Boxed, because its type has no name.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

// The frames are restored when code inside the section panics, and everything else is only read.
impl UnwindSafe for Section {}
impl RefUnwindSafe for Section {}

impl Section {
    pub(crate) fn new(view: HoldView) -> Self {
        Self {
            view,
            frames: None,
            over: None,
        }
    }

    fn frames(&mut self) -> &Frames {
        if self.frames.is_none() {
            let own = EnclosingScope::new(frames(), self.view.clone());
            self.frames = Some(Arc::new(own));
        }
        &self.frames
    }

    /// Ends the section: from now on nothing re-enters the hold through it. The drop does the same.
    pub(super) fn close(&self) {
        if let Some(own) = &self.frames {
            own.close();
        }
    }

    /// Returns whether the section's guard holds the key, wherever that guard is by now. See
    /// [`Guard::is_held`](crate::Guard::is_held).
    ///
    /// # Examples
    /// See [`Section`].
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// Returns how long the section's guard still holds the key, unless its lease is renewed; zero once it does not. See
    /// [`Guard::remaining`](crate::Guard::remaining).
    ///
    /// # Examples
    /// See [`Guard::remaining`](crate::Guard::remaining).
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Returns a future that completes when the hold is lost or the section's guard ends, wherever that guard is by now. See
    /// [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`Section`].
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.view.clone().over()
    }

    /// Runs a function inside the section: its acquisitions of the key re-enter the hold. Does not check whether the
    /// hold is lost.
    ///
    /// # Examples
    /// See [`Section`].
    pub fn enter<R>(&mut self, run: impl FnOnce() -> R) -> R {
        within(self.frames(), run)
    }

    /// Polls a future inside the section, unless the hold is lost.
    ///
    /// The lease is compared with the clock before `poll` runs, and the task is woken when the hold is lost. Outside a tokio
    /// runtime it is woken when the client's task finds the loss. A released
    /// guard is not a loss: `poll` runs then, and its acquisitions are ordinary ones.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold is lost. The caller then has to drop the future that it polled, inside
    /// [`enter`](Section::enter).
    ///
    /// # Examples
    /// See [`Section`].
    pub fn poll_in<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<Result<R, Error>> {
        if let Some(error) = self.loss() {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(output) = within(self.frames(), || poll(cx)) {
            return Poll::Ready(Ok(output));
        }
        // A guard that has ended cannot be lost any more. Only the body wakes the task.
        loop {
            if self.view.has_ended() {
                return Poll::Pending;
            }
            // The body has registered the task as well: it is woken by whichever comes first.
            let view = &self.view;
            let over = self
                .over
                .get_or_insert_with(|| Box::pin(view.clone().over()));
            ready!(over.as_mut().poll(cx));
            // A completed future must not be polled again.
            self.over = None;
            if let Some(error) = self.loss() {
                return Poll::Ready(Err(error));
            }
            // A renewal was confirmed after the end of the lease was noticed: the task has to be woken at the new end.
        }
    }

    fn loss(&self) -> Option<Error> {
        if self.view.has_ended() {
            None
        } else {
            self.view.loss()
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::runtime::{Builder, Runtime};

    use super::Section;
    use crate::error::Error;
    use crate::{Client, Guard};

    fn runtime() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    }

    fn poll_pending(section: &mut Section, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        section.poll_in(cx, |_| Poll::Pending)
    }

    async fn held() -> (Guard, Section) {
        let lock = Client::in_memory().lock("k");
        let guard = lock.acquire().lease(Duration::from_secs(10)).await.unwrap();
        let section = guard.section();
        (guard, section)
    }

    #[test]
    fn section_is_pending_outside_a_runtime_and_finds_its_loss_in_one() {
        let runtime = runtime();
        let (_guard, mut section) = runtime.block_on(held());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(poll_pending(&mut section, &mut cx).is_pending());
        let lost = runtime.block_on(poll_fn(|cx| poll_pending(&mut section, cx)));
        assert!(lost.unwrap_err().is_lost());
    }

    #[test]
    fn lost_completes_outside_a_runtime_when_the_watchdog_has_found_the_loss() {
        let runtime = runtime();
        let (guard, section) = runtime.block_on(held());
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = [guard.lost().boxed(), section.lost().boxed()];
        assert!(
            waits
                .iter_mut()
                .all(|lost| lost.poll_unpin(&mut cx).is_pending())
        );
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(11)).await });
        assert!(
            waits
                .iter_mut()
                .all(|lost| lost.poll_unpin(&mut cx).is_ready())
        );
    }

    #[test]
    fn lost_that_was_polled_outside_a_runtime_or_in_one_that_has_ended_completes_in_another() {
        let former = runtime();
        let lock = Client::in_memory().lock("k");
        let bounded = lock.acquire().max_hold(Duration::from_secs(10));
        let guard = former.block_on(bounded.into_future()).unwrap();
        let mut outside = guard.lost().boxed();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(outside.poll_unpin(&mut cx).is_pending());
        let mut inside = guard.lost().boxed();
        former.block_on(async {
            assert!(inside.poll_unpin(&mut cx).is_pending());
        });
        drop(former);
        assert!(inside.poll_unpin(&mut cx).is_pending());
        runtime().block_on(futures_util::future::join(outside, inside));
        assert!(!guard.is_held());
    }

    #[test]
    fn section_that_was_pending_in_a_runtime_that_has_ended_goes_on_in_another() {
        let former = runtime();
        let (_guard, mut section) = former.block_on(held());
        former.block_on(async {
            let poll = poll_fn(|cx| Poll::Ready(poll_pending(&mut section, cx)));
            assert!(poll.await.is_pending());
        });
        drop(former);
        let lost = runtime().block_on(poll_fn(|cx| poll_pending(&mut section, cx)));
        assert!(lost.unwrap_err().is_lost());
    }
}

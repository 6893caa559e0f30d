//! Carrying the enclosing scopes into another task.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::client::installed::{Carried, carry};
use crate::error::polled_after_completion;
use crate::scope::{Frames, frames, within};

/// Carries the enclosing scopes into another task: inside `future`, acquiring a key that an enclosing scope holds
/// re-enters that hold.
///
/// The scopes are those around the call of `inherit`, not those around the task. If one of them ends before `future`
/// does, also by a loss, `future` is not dropped. It goes on without that hold, and its keys are acquired like any other keys from then
/// on. The client of an enclosing [`with_client`](crate::with_client) is carried over as well.
///
/// It works wherever a future is run:
///
/// | instead of | write |
/// | --- | --- |
/// | `tokio::spawn(work())` | `tokio::spawn(inherit(work()))` |
/// | `tasks.spawn(work())` of a `JoinSet` | `tasks.spawn(inherit(work()))` |
/// | `spawn_blocking(..)` | an inherited future that the thread drives, as in the second example |
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let lock = client.lock("order:42");
/// let guard = lock.acquire().await?;
/// guard.scope(async {
///     let lock = lock.clone();
///     let task = distlock::inherit(async move { lock.try_acquire().await });
///     assert!(tokio::spawn(task).await.unwrap()?.is_some());
///     Ok(())
/// }).await?
/// # }
/// ```
///
/// A thread of `spawn_blocking` drives the future with the handle of its runtime:
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use tokio::runtime::Handle;
///
/// let client = distlock::Client::in_memory();
/// client.lock("order:42").acquire().run(async {
///     let here = distlock::inherit(async { distlock::is_held("order:42") });
///     let there = tokio::task::spawn_blocking(move || Handle::current().block_on(here));
///     assert!(there.await.unwrap());
/// }).await
/// # }
/// ```
pub fn inherit<F: Future>(future: F) -> Inherit<F> {
    Inherit {
        frames: frames(),
        body: Some(carry(future)),
    }
}

pin_project! {
    /// A future that runs inside the scopes of another task; made by [`inherit`].
    ///
    /// # Cancel safety
    /// Dropping it drops the inner future inside the scopes.
    ///
    /// # Examples
    /// See [`inherit`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Inherit<F> {
        frames: Frames,
        #[pin]
        body: Option<Carried<F>>,
    }

    impl<F> PinnedDrop for Inherit<F> {
        fn drop(this: Pin<&mut Self>) {
            // Inside the frames, so that code in the `Drop` of the body still sees the scopes.
            let mut this = this.project();
            within(this.frames, || this.body.set(None));
        }
    }
}

impl<F: Future> Future for Inherit<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        within(this.frames, || {
            let output = match this.body.as_mut().as_pin_mut() {
                Some(body) => ready!(body.poll(cx)),
                None => polled_after_completion(),
            };
            // Inside the frames as well, so that its `Drop` sees the scopes.
            this.body.set(None);
            Poll::Ready(output)
        })
    }
}

impl<F> fmt::Debug for Inherit<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inherit")
            .field("scoped", &self.frames.is_some())
            .finish_non_exhaustive()
    }
}

//! Scopes: a future that runs inside the critical section of a guard.
//!
//! `frames.rs` has what code inside of a scope finds, `section.rs` what enters and leaves it, and `current.rs` what the user's
//! code can ask.

pub(crate) mod current;
mod frames;
mod section;

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

pub(crate) use self::frames::{Frame, Frames, frames, within};
pub use self::section::Section;
use crate::error::{Error, polled_after_completion};

pin_project! {
    /// A future that runs inside a critical section, made by [`Guard::scope`](crate::Guard::scope).
    ///
    /// # Cancel safety
    /// The same as [`Guard::scope`](crate::Guard::scope).
    ///
    /// # Examples
    /// See [`Guard::scope`](crate::Guard::scope).
    #[must_use = "futures do nothing unless awaited"]
    pub struct Scope<'g, F> {
        section: Section,
        #[pin]
        body: Option<F>,
        guard: PhantomData<&'g ()>,
    }

    impl<F> PinnedDrop for Scope<'_, F> {
        fn drop(this: Pin<&mut Self>) {
            // The body is dropped first, and inside its section, so that code in its `Drop` still sees the scope.
            let mut this = this.project();
            this.section.enter(|| this.body.set(None));
        }
    }
}

impl<F> Scope<'_, F> {
    pub(crate) fn new(section: Section, body: F) -> Self {
        Self {
            section,
            body: Some(body),
            guard: PhantomData,
        }
    }
}

impl<F: Future> Future for Scope<'_, F> {
    type Output = Result<F::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let output = ready!(poll_body(this.section, this.body.as_mut(), cx));
        // The future may be kept for long after that.
        this.section.close();
        Poll::Ready(output)
    }
}

pin_project! {
    /// A future that returns a `Result` and runs inside a critical section, made by
    /// [`Guard::try_scope`](crate::Guard::try_scope).
    ///
    /// # Cancel safety
    /// The same as [`Guard::try_scope`](crate::Guard::try_scope).
    ///
    /// # Examples
    /// See [`Guard::try_scope`](crate::Guard::try_scope).
    #[must_use = "futures do nothing unless awaited"]
    pub struct TryScope<'g, F> {
        #[pin]
        scope: Scope<'g, F>,
    }
}

impl<F> TryScope<'_, F> {
    pub(crate) fn new(section: Section, body: F) -> Self {
        Self {
            scope: Scope::new(section, body),
        }
    }
}

impl<T, E, F> Future for TryScope<'_, F>
where
    F: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.project().scope.poll(cx));
        Poll::Ready(ended.unwrap_or_else(|lost| Err(lost.into())))
    }
}

/// Polls a body inside its section, and drops it there when it is done or the hold is lost.
pub(crate) fn poll_body<F: Future>(
    section: &mut Section,
    mut body: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Error>> {
    let Some(unfinished) = body.as_mut().as_pin_mut() else {
        polled_after_completion();
    };
    let output = ready!(section.poll_in(cx, |cx| unfinished.poll(cx)));
    section.enter(|| body.set(None));
    Poll::Ready(output)
}

impl<F> fmt::Debug for Scope<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("section", &self.section)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for TryScope<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryScope").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::Arc;

    use super::frames::{EnclosingScope, Frames, frames, outwards, within};
    use crate::Client;

    #[tokio::test]
    async fn section_on_many_keys_is_one_link_of_the_chain_and_shares_its_guards_view() {
        let client = Client::in_memory();
        let keys = ["a", "b", "c"];
        let guard = client.multi_lock(keys).acquire().await.unwrap();
        let mut outer = guard.section();
        let mut inner = guard.section();
        let around = outer.enter(|| inner.enter(frames));
        assert_eq!(outwards(&around).count(), 2);
        let innermost = around.as_ref().unwrap().view.members();
        assert_eq!(innermost.len(), keys.len());
        assert!(std::ptr::eq(&*innermost, &*inner.view.members()));
    }

    /// How many scopes are kept for a piece of code, open or closed.
    fn kept(frames: &Frames) -> usize {
        let parent = |scope: &Arc<EnclosingScope>| scope.parent.lock().clone();
        iter::successors(frames.clone(), parent).count()
    }

    #[tokio::test]
    async fn closed_scopes_are_let_go_however_long_the_chain() {
        let client = Client::in_memory();
        let guard = client.lock("k").acquire().await.unwrap();
        // Each begins inside the last one, which ends before the next begins, or after.
        for overlaps in [false, true] {
            let mut last = guard.section();
            for _ in 0..1_000 {
                let inside = last.enter(frames);
                let mut next = guard.section();
                if overlaps {
                    within(&inside, || next.enter(|| ()));
                }
                drop(last);
                within(&inside, || next.enter(|| ()));
                last = next;
                assert!(kept(&last.enter(frames)) <= 2);
            }
        }
    }
}

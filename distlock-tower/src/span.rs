//! Tasks that run inside the span of their request.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tracing::Span;
use tracing::span::Entered;

pin_project! {
    /// A future that is polled and dropped inside of a span.
    ///
    /// Not the one of `tracing::Instrument`: if the subscriber panics there, the task ends in the middle of its work. Here the work
    /// goes on.
    pub(crate) struct InSpan<F> {
        span: Span,
        // `None` once it is done.
        #[pin]
        work: Option<F>,
    }

    impl<F> PinnedDrop for InSpan<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            {
                let _entered = EnteredSpan::enter(this.span);
                this.work.set(None);
            }
            // The subscriber is told that the span is closed.
            contained(|| drop(mem::replace(this.span, Span::none())));
        }
    }
}

/// Has a future run inside the current span.
pub(crate) fn in_current_span<F: Future>(work: F) -> InSpan<F> {
    InSpan {
        span: Span::current(),
        work: Some(work),
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _entered = EnteredSpan::enter(this.span);
        let Some(work) = this.work.as_mut().as_pin_mut() else {
            panic!("polled after its completion");
        };
        let polled = work.poll(cx);
        if polled.is_ready() {
            this.work.set(None);
        }
        polled
    }
}

/// A span that was entered, until it is dropped. `None` if the subscriber has panicked.
struct EnteredSpan<'a>(Option<Entered<'a>>);

impl<'a> EnteredSpan<'a> {
    fn enter(span: &'a Span) -> Self {
        let mut entered = Self(None);
        contained(|| entered.0 = Some(span.enter()));
        entered
    }
}

impl Drop for EnteredSpan<'_> {
    fn drop(&mut self) {
        contained(|| drop(self.0.take()));
    }
}

/// Calls the subscriber of the log. Its panic goes no further.
fn contained(call: impl FnOnce()) {
    let _panic = catch_unwind(AssertUnwindSafe(call));
}

//! An acquisition from its first request to its end: one span, one count, and an event if it was refused.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tracing::Span;

use crate::error::Error;
use crate::key::Key;
use crate::telemetry::{self, LockType, Meter, Outcome};
use crate::wait::ClientRequest;

pin_project! {
    /// An acquisition that talks to the server or waits, which is all but re-entries.
    ///
    /// It is a part of the future of each acquisition, so the span is boxed, and there is none unless somebody collects it.
    pub(super) struct Observed<'a, F> {
        #[pin]
        acquiring: F,
        // The request, or the first of several.
        one: &'a ClientRequest,
        meter: Meter,
        is_over: bool,
        span: Option<Box<Span>>,
    }

    impl<F> PinnedDrop for Observed<'_, F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if !*this.is_over {
                ended(this.one, *this.meter, this.span, Outcome::Cancelled);
            }
        }
    }
}

impl<'a, F> Observed<'a, F> {
    /// `keys`: all keys of the acquisition.
    pub(super) fn new<'k>(
        one: &'a ClientRequest,
        lock_type: LockType,
        keys: impl Iterator<Item = &'k Key>,
        acquiring: F,
    ) -> Self {
        let session = &one.registry.session;
        Self {
            acquiring,
            one,
            meter: Meter::new(lock_type, &one.requested().resource.key, &session.config),
            is_over: false,
            span: telemetry::acquire_span(lock_type, keys, session.id, one.request.wait),
        }
    }
}

impl<T, F: Future<Output = Result<T, Error>>> Future for Observed<'_, F> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.span.as_ref().map(|span| span.enter());
        let output = ready!(this.acquiring.poll(cx));
        *this.is_over = true;
        let outcome = Outcome::of(output.as_ref().err());
        ended(this.one, *this.meter, this.span, outcome);
        if let Err(error) = &output {
            telemetry::refused(error);
        }
        Poll::Ready(output)
    }
}

/// Takes note of how the acquisition ended.
fn ended(one: &ClientRequest, meter: Meter, span: &Option<Box<Span>>, outcome: Outcome) {
    // Reading the clock is a part of the cost of a grant.
    if span.is_none() && !Meter::COUNTS {
        return;
    }
    let session = &one.registry.session;
    let waited = session.now().since(one.request.since);
    telemetry::acquire_ended(span.as_deref(), outcome, waited);
    meter.acquired(outcome, waited);
}

//! The span of one acquisition.

use std::borrow::Cow;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, debug};
use tracing::span::Entered;
use uuid::Uuid;

use super::events::{TARGET, refused};
use super::labels::{LockType, Outcome};
use crate::error::Error;
use crate::resource::key::Key;
use crate::sync::foreign;

#[derive(Debug)]
pub(crate) struct AcquireSpan(Span);

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        // The subscriber is told that the span is closed.
        foreign::tell(|| drop(mem::replace(&mut self.0, Span::none())));
    }
}

/// A span that was entered, until it is dropped.
struct EnteredSpan<'a>(Option<Entered<'a>>);

impl<'a> EnteredSpan<'a> {
    fn enter(AcquireSpan(span): &'a AcquireSpan) -> Self {
        let mut entered = Self(None);
        foreign::tell(|| entered.0 = Some(span.enter()));
        entered
    }
}

impl Drop for EnteredSpan<'_> {
    fn drop(&mut self) {
        foreign::tell(|| drop(self.0.take()));
    }
}

/// A future that is polled and dropped inside of a span.
///
/// Not the one of `tracing::Instrument`: if the subscriber panics when that one leaves the span, nobody drops the output, which may be a
/// granted hold. And the subscriber is called again while the thread unwinds, where another panic ends the process.
pub(crate) struct InSpan<'a, F> {
    span: &'a AcquireSpan,
    /// `None` once it is done.
    future: Option<Pin<Box<F>>>,
}

impl<'a, F> InSpan<'a, F> {
    pub(crate) fn new(span: &'a AcquireSpan, future: Pin<Box<F>>) -> Self {
        let future = Some(future);
        Self { span, future }
    }
}

impl<F: Future> Future for InSpan<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { span, future } = &mut *self;
        // Declared before: if the end of a block panics, the value of the block is not dropped.
        let polled;
        {
            let _entered = EnteredSpan::enter(span);
            let Some(running) = future else {
                panic!("polled after it was done");
            };
            polled = running.as_mut().poll(cx);
            if polled.is_ready() {
                *future = None;
            }
        }
        polled
    }
}

impl<F> Drop for InSpan<'_, F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            let _entered = EnteredSpan::enter(self.span);
            self.future = None;
        }
    }
}

/// The span of an acquisition, unless nobody collects spans of this level. Then the cost is a comparison of levels.
pub(crate) fn acquire_span<'k>(
    lock_type: LockType,
    keys: impl Iterator<Item = &'k Key>,
    client: Uuid,
    wait: Option<Duration>,
) -> Option<Box<AcquireSpan>> {
    // One key is not copied: without a subscriber, but with the feature `log` of `tracing`, the values are made for nobody.
    let keys = || {
        let mut keys = keys.map(Key::text);
        match (keys.next(), keys.next()) {
            (Some(one), None) => Cow::Borrowed(one),
            (first, second) => {
                let all: Vec<&str> = first.into_iter().chain(second).chain(keys).collect();
                Cow::Owned(all.join(", "))
            }
        }
    };
    let mut span = Span::none();
    foreign::tell(|| {
        span = tracing::debug_span!(
            target: TARGET, "distlock.acquire", kind = lock_type.name(), key = &*keys(), %client,
            wait = wait.map(debug), outcome = Empty, waited = Empty,
        );
    });
    (!span.is_disabled()).then(|| Box::new(AcquireSpan(span)))
}

/// Records how an acquisition ended. `span`: its span, if there is one.
pub(crate) fn acquire_ended(span: Option<&AcquireSpan>, outcome: Outcome, waited: Duration) {
    if let Some(AcquireSpan(span)) = span {
        foreign::tell(|| {
            span.record("outcome", outcome.name());
            span.record("waited", debug(waited));
        });
    }
}

/// Logs that an acquisition ended without a grant, inside its span.
pub(crate) fn acquire_refused(span: Option<&AcquireSpan>, error: &Error) {
    let _entered = span.map(EnteredSpan::enter);
    foreign::tell(|| refused(error));
}

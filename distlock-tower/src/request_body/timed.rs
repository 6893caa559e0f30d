//! A request body whose arrival is timed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::{BodyClock, Wait};

/// A body that ends in an error when its clock expires.
pub(super) struct TimedBody<B: Body> {
    /// `None` once the clock has expired.
    inner: Option<B>,
    clock: Arc<BodyClock>,
    // Made at the first wait. Most bodies have arrived when they are read.
    timer: Option<Pin<Box<Sleep>>>,
    into_error: fn(BodyTimeout) -> B::Error,
}

impl<B: Body> TimedBody<B> {
    pub(super) fn new(
        inner: B,
        clock: Arc<BodyClock>,
        into_error: fn(BodyTimeout) -> B::Error,
    ) -> Self {
        Self {
            inner: Some(inner),
            clock,
            timer: None,
            into_error,
        }
    }

    /// Whether the time of the body is over. If not, the caller is woken when it is.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = match self.clock.waits() {
            Wait::Expired => return Poll::Ready(()),
            Wait::Unbounded => return Poll::Pending,
            Wait::Until(until) => until,
        };
        // Outside a runtime there are no timers. The time is then compared at each poll only.
        if self.timer.is_none() && Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| new_timer(until));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    }
}

fn new_timer(until: Instant) -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(until))
}

impl<B: Body<Data = Bytes> + Unpin> Body for TimedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        if !this.clock.is_running() {
            return Pin::new(inner).poll_frame(cx);
        }
        this.clock.reader_polls(cx);
        let waker = Waker::from(Arc::clone(&this.clock));
        match Pin::new(&mut *inner).poll_frame(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(Ok(frame))) if !inner.is_end_stream() => {
                this.clock.received();
                Poll::Ready(Some(Ok(frame)))
            }
            // Also with the last frame: nobody may poll for the end after it.
            Poll::Ready(last) => {
                this.clock.stop();
                Poll::Ready(last)
            }
            Poll::Pending => {
                if this.poll_timer(cx).is_pending() || !this.clock.expire() {
                    return Poll::Pending;
                }
                this.inner = None;
                let error = BodyTimeout {
                    limit: this.clock.limit(),
                };
                Poll::Ready(Some(Err((this.into_error)(error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// The error in which such a body ends.
#[derive(Debug)]
pub(crate) struct BodyTimeout {
    pub(crate) limit: Duration,
}

impl fmt::Display for BodyTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the client took longer than {:?} to send the request's body while the lock was held",
            self.limit
        )
    }
}

impl std::error::Error for BodyTimeout {}

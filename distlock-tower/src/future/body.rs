//! The response body of a lock service: the inner service's body, with or without the hold, or the body of an answer.
//!
//! # Invariants
//! 1. A body with the hold is polled and dropped inside the section. It is dropped before the hold is released, unless it
//!    has delivered all the bytes that it announced. It is then kept for its trailers, which come after the release.
//! 2. The end of the body is passed on after the release is confirmed or has failed. After a loss the body ends in an error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::held::{Interruption, RequestHold};
use crate::respond;

pin_project! {
    /// The response body of a [`LockService`](crate::LockService).
    ///
    /// It forwards the frames, the end and the size of the inner body. With [`HoldUntil::Body`](crate::HoldUntil::Body)
    /// it also has the hold.
    ///
    /// # Cancel safety
    /// Dropping a body that has the hold drops the inner body inside the critical section, and then releases the lock
    /// in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock_tower::BoxError> {
    /// use bytes::Bytes;
    /// use distlock_tower::{HoldBody, LockLayer};
    /// use http::{Request, Response, request::Parts};
    /// use http_body_util::{BodyExt, Full};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// async fn import(_: Request<()>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    ///     Ok(Response::new(Full::from("done")))
    /// }
    ///
    /// let layer = LockLayer::new(distlock::Client::in_memory()).key(|_: &Parts| "import");
    /// let body: HoldBody<Full<Bytes>> = layer.layer(service_fn(import)).oneshot(Request::new(())).await?.into_body();
    /// assert_eq!(body.collect().await?.to_bytes(), "done");
    /// # Ok(()) }
    /// ```
    pub struct HoldBody<B> {
        #[pin]
        kind: Kind<B>,
    }

    impl<B> PinnedDrop for HoldBody<B> {
        fn drop(this: Pin<&mut Self>) {
            // The body is dropped first, and inside the section, so that code in its `Drop` still sees the scope.
            if let KindProj::Held { mut body, body_hold } = this.project().kind.project() {
                body_hold.hold.enter(|| body.set(None));
            }
        }
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Inner { #[pin] body: B },
        // Boxed, so that responses which lock nothing stay small.
        Held { #[pin] body: Option<B>, body_hold: Box<BodyHold> },
        Answer { #[pin] body: UnsyncBoxBody<Bytes, BoxError> },
    }
}

impl<B> HoldBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    /// `length` is the number of bytes that the body will have, if it is known.
    pub(crate) fn with_hold(body: B, length: Option<u64>, hold: RequestHold) -> Self {
        Self {
            kind: Kind::Held {
                body: Some(body),
                body_hold: Box::new(BodyHold {
                    hold,
                    remaining: length,
                    last_data: None,
                    trailers: None,
                }),
            },
        }
    }

    pub(crate) fn answer(body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Self {
            kind: Kind::Answer { body },
        }
    }
}

/// The hold of a body, and the frames that wait for its release.
struct BodyHold {
    hold: RequestHold,
    /// The number of bytes still to come, if it is known. Servers drop a body without polling for its end once they
    /// have sent as many bytes as announced, so the release cannot wait for the end.
    remaining: Option<u64>,
    /// The last data and the trailers. They are passed on after the release.
    last_data: Option<Frame<Bytes>>,
    trailers: Option<Frame<Bytes>>,
}

/// The number of bytes in a response's body, as a server determines it.
pub(crate) fn length<B: Body>(response: &Response<B>) -> Option<u64> {
    let announced = response.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    announced.or_else(|| response.body().size_hint().exact())
}

/// What to do after a frame.
enum NextStep {
    PassOn(Frame<Bytes>),
    /// The frame was the last data. Trailers may be ready.
    PollTrailers,
    /// Trailers may follow later.
    ReleaseBeforeTrailers,
    Release,
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl BodyHold {
    fn poll_frame<B>(&mut self, mut body: Pin<&mut Option<B>>, cx: &mut Context<'_>) -> Polled
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        while self.hold.is_running() {
            let polled = self
                .hold
                .poll_in(cx, |cx| match body.as_mut().as_pin_mut() {
                    Some(body) => body.poll_frame(cx),
                    None => Poll::Ready(None),
                });
            let frame = match polled {
                Poll::Ready(frame) => frame,
                // All bytes have arrived. The client may need the last ones for what the trailers wait for, and a server
                // may drop the body after them. So they do not wait for trailers.
                Poll::Pending if self.last_data.is_some() => {
                    self.hold.begin_release();
                    break;
                }
                Poll::Pending => return Poll::Pending,
            };
            let next = match frame {
                Ok(Some(Ok(frame))) => self.count(frame, is_end(&body)),
                Ok(None) => NextStep::Release,
                Ok(Some(Err(own))) => return self.fail(body, own.into()),
                Err(Interruption::Lost(lost)) => {
                    respond::lost_while_streaming(&lost);
                    return self.fail(body, lost.into());
                }
                Err(Interruption::BodyTimeout(timeout)) => {
                    respond::body_timed_out(&timeout, self.hold.keys());
                    return self.fail(body, timeout.into());
                }
            };
            match next {
                NextStep::PassOn(frame) => return Poll::Ready(Some(Ok(frame))),
                NextStep::PollTrailers => {}
                NextStep::ReleaseBeforeTrailers => self.hold.begin_release(),
                NextStep::Release => {
                    self.hold.enter(|| body.set(None));
                    self.hold.begin_release();
                }
            }
        }
        self.poll_kept_back(body, cx)
    }

    /// The frames that were kept back, once the release is done.
    fn poll_kept_back<B>(&mut self, body: Pin<&mut Option<B>>, cx: &mut Context<'_>) -> Polled
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        match ready!(self.hold.poll_release(cx)) {
            Err(lost) if lost.is_lost() => {
                respond::lost_while_streaming(&lost);
                return self.fail(body, lost.into());
            }
            Err(error) => respond::release_failed(&error),
            Ok(()) => {}
        }
        match self.last_data.take().or_else(|| self.trailers.take()) {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => poll_trailers(body, cx),
        }
    }

    /// Keeps the last frames back. `is_end` says that no frame follows this one.
    fn count(&mut self, frame: Frame<Bytes>, is_end: bool) -> NextStep {
        let Some(data) = frame.data_ref() else {
            self.trailers = Some(frame);
            return NextStep::Release;
        };
        if self.last_data.is_some() {
            // A body that passes frames of another one on may have empty data in front of its trailers.
            return if data.is_empty() && !is_end {
                NextStep::ReleaseBeforeTrailers
            } else {
                // The body has more data than it announced. A server does not send it.
                NextStep::Release
            };
        }
        let received = data.len() as u64;
        self.remaining = self.remaining.map(|bytes| bytes.saturating_sub(received));
        if !is_end && self.remaining != Some(0) {
            return NextStep::PassOn(frame);
        }
        self.last_data = Some(frame);
        if is_end {
            NextStep::Release
        } else {
            NextStep::PollTrailers
        }
    }

    /// Ends the body with an error. If the handler did not keep the guard, the lock is released in the background.
    fn fail<B>(&mut self, mut body: Pin<&mut Option<B>>, error: BoxError) -> Polled {
        self.hold.enter(|| body.set(None));
        self.hold.release_in_background();
        // The client must not take the body for a complete one.
        (self.last_data, self.trailers) = (None, None);
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream<B: Body>(&self, body: &Option<B>) -> bool {
        let has_frame = self.last_data.is_some() || self.trailers.is_some();
        self.hold.is_done() && !has_frame && is_end(body)
    }

    /// The size of the frames still to come.
    fn size_hint<B: Body>(&self, body: Option<&B>) -> SizeHint {
        let last = self.last_data.as_ref().and_then(Frame::data_ref);
        match body {
            Some(body) if self.hold.is_running() => body.size_hint(),
            _ => SizeHint::with_exact(last.map_or(0, |data| data.len() as u64)),
        }
    }
}

/// The trailers of a body that has delivered all its bytes, after the release.
fn poll_trailers<B>(mut body: Pin<&mut Option<B>>, cx: &mut Context<'_>) -> Polled
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let Some(rest) = body.as_mut().as_pin_mut() else {
        return Poll::Ready(None);
    };
    let last = ready!(rest.poll_frame(cx));
    if let Some(Ok(frame)) = &last
        && frame.data_ref().is_some_and(Bytes::is_empty)
    {
        // Trailers may follow it. A body could go on so without end, so other tasks run first.
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    body.set(None);
    // More data than was announced is left out. A server does not send it.
    Poll::Ready(match last {
        Some(Ok(frame)) => frame.is_trailers().then_some(Ok(frame)),
        Some(Err(error)) => Some(Err(error.into())),
        None => None,
    })
}

fn is_end<B: Body>(body: &Option<B>) -> bool {
    body.as_ref().is_none_or(Body::is_end_stream)
}

impl<B> Body for HoldBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            KindProj::Held { body, body_hold } => body_hold.poll_frame(body, cx),
            KindProj::Answer { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Held { body, body_hold } => body_hold.is_end_stream(body),
            Kind::Answer { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Held { body, body_hold } => body_hold.size_hint(body.as_ref()),
            Kind::Answer { body } => body.size_hint(),
        }
    }
}

impl<B: Default> Default for HoldBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
    }
}

impl<B> fmt::Debug for HoldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Inner { .. } => "Inner",
            Kind::Held { .. } => "Held",
            Kind::Answer { .. } => "Answer",
        };
        f.debug_tuple("HoldBody").field(&kind).finish()
    }
}

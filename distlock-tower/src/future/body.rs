//! The body of a guarded service's response: the service's own, with or without the hold, or that of an answer in its
//! place.
//!
//! # Invariants
//! 1. A body that has the hold is polled and dropped inside the section, and is gone before the hold is released.
//! 2. Its end is told only after the release was confirmed, or failed; after a loss there is no end but an error.

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
use crate::held::RequestHold;
use crate::respond;

pin_project! {
    /// The response body of a [`LockService`](crate::LockService).
    ///
    /// It passes on what the inner body says, frames, end and size alike. With [`HoldUntil::Body`](crate::HoldUntil::Body) it has the hold, as
    /// told there; dropping it then releases in the background.
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
            if let KindProj::Held { mut body, holding } = this.project().kind.project() {
                holding.hold.enter(|| body.set(None));
            }
        }
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Held { #[pin] body: Option<B>, holding: Holding },
        Answer { #[pin] body: UnsyncBoxBody<Bytes, BoxError> },
    }
}

impl<B> HoldBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    /// `length` is how many bytes it is to have, where that is known.
    pub(crate) fn held(body: B, length: Option<u64>, hold: RequestHold) -> Self {
        Self {
            kind: Kind::Held {
                body: Some(body),
                holding: Holding {
                    hold,
                    left: length,
                    last: None,
                    trailers: None,
                },
            },
        }
    }

    pub(crate) fn answer(body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Self {
            kind: Kind::Answer { body },
        }
    }
}

/// The hold of a body.
struct Holding {
    hold: RequestHold,
    /// How many bytes are still to come, where that is known: servers drop a body without asking for its end once they
    /// have sent as many as were announced.
    left: Option<u64>,
    /// What is passed on after the release, as far as the end has it.
    last: Option<Frame<Bytes>>,
    trailers: Option<Frame<Bytes>>,
}

/// How many bytes a response's body is to have, by what a server goes by.
pub(crate) fn length<B: Body>(response: &Response<B>) -> Option<u64> {
    let announced = response.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    announced.or_else(|| response.body().size_hint().exact())
}

/// What is done with a frame.
enum Next {
    Pass(Frame<Bytes>),
    /// It is the last data; trailers may be there.
    LookOn,
    End,
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl Holding {
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
                // All bytes are there: what is not by now is not waited for.
                Poll::Pending if self.last.is_some() => Ok(None),
                Poll::Pending => return Poll::Pending,
            };
            let next = match frame {
                Ok(Some(Ok(frame))) => self.count(frame, is_end(&body)),
                Ok(None) => Next::End,
                Ok(Some(Err(own))) => return self.fail(body, own.into()),
                Err(lost) => {
                    respond::lost_while_streaming(&lost);
                    return self.fail(body, lost.into());
                }
            };
            match next {
                Next::Pass(frame) => return Poll::Ready(Some(Ok(frame))),
                Next::LookOn => {}
                Next::End => {
                    self.hold.enter(|| body.set(None));
                    self.hold.begin_release();
                }
            }
        }
        match ready!(self.hold.poll_release(cx)) {
            Err(lost) if lost.is_lost() => {
                respond::lost_while_streaming(&lost);
                return self.fail(body, lost.into());
            }
            Err(error) => respond::release_failed(&error),
            Ok(()) => {}
        }
        let frame = self.last.take().or_else(|| self.trailers.take());
        Poll::Ready(frame.map(Ok))
    }

    /// Keeps back the last frames; `is_end` says that nothing comes after this one.
    fn count(&mut self, frame: Frame<Bytes>, is_end: bool) -> Next {
        let Some(data) = frame.data_ref() else {
            self.trailers = Some(frame);
            return Next::End;
        };
        if self.last.is_some() {
            // More than was announced, which no server sends.
            return Next::End;
        }
        let come = data.len() as u64;
        self.left = self.left.map(|left| left.saturating_sub(come));
        if !is_end && self.left != Some(0) {
            return Next::Pass(frame);
        }
        self.last = Some(frame);
        if is_end { Next::End } else { Next::LookOn }
    }

    /// What may be left of the hold is released in the background.
    fn fail<B>(&mut self, mut body: Pin<&mut Option<B>>, error: BoxError) -> Polled {
        self.hold.enter(|| body.set(None));
        self.hold.release_in_background();
        (self.last, self.trailers) = (None, None);
        Poll::Ready(Some(Err(error)))
    }

    /// How much is still to come.
    fn size_hint<B: Body>(&self, body: Option<&B>) -> SizeHint {
        let last = self.last.as_ref().and_then(Frame::data_ref);
        match body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(last.map_or(0, |data| data.len() as u64)),
        }
    }
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
            KindProj::Held { body, holding } => holding.poll_frame(body, cx),
            KindProj::Answer { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Held { holding, .. } => {
                holding.hold.is_done() && holding.last.is_none() && holding.trailers.is_none()
            }
            Kind::Answer { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Held { body, holding } => holding.size_hint(body.as_ref()),
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

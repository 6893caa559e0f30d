//! The body of a guarded service's response: the service's own, or that of an answer in its place.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

pin_project! {
    /// The response body of a [`LockService`](crate::LockService).
    ///
    /// It passes on what the inner body says, frames, end and size alike. It does not keep the lock: that was released
    /// before the response was returned.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), std::convert::Infallible> {
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
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Answer { #[pin] body: Full<Bytes> },
    }
}

impl<B> HoldBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(crate) fn answer(body: Full<Bytes>) -> Self {
        Self {
            kind: Kind::Answer { body },
        }
    }
}

impl<B> Body for HoldBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx),
            KindProj::Answer { body } => body
                .poll_frame(cx)
                .map_err(|impossible| match impossible {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Answer { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
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
            Kind::Answer { .. } => "Answer",
        };
        f.debug_tuple("HoldBody").field(&kind).finish()
    }
}

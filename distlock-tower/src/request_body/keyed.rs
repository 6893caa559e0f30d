//! The body that a handler gets from a layer that has read it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request behind a layer whose [key comes from the body](crate::Unkeyed::key_from_body): the bytes that
    /// the layer has read, or the body itself if the layer has not read it, because its conditions exclude the request.
    ///
    /// The layer therefore works for every body type, such as hyper's `Incoming`, or the body of a `RequestBodyLimitLayer`
    /// outside. axum's routes and extractors accept this type. axum's `from_fn` does not: put it in a `layer` call of its
    /// own.
    ///
    /// # Examples
    /// ```
    /// use std::convert::Infallible;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// use bytes::Bytes;
    /// use distlock_tower::{LockLayer, key::KeyedBody};
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// async fn place(request: Request<KeyedBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    ///     let order = request.into_body().collect().await?.to_bytes();
    ///     Ok(Response::new(Full::from(order)))
    /// }
    ///
    /// let layer = LockLayer::new(distlock::Client::in_memory())
    ///     .key_from_body(1024, |_, body| String::from_utf8(body.to_vec()).ok());
    /// let request = Request::new(Full::from("order:42"));
    /// let response = layer.layer(service_fn(place)).oneshot(request).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub struct KeyedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Read { body: Full<Bytes> },
        Unread { #[pin] body: B },
    }
}

impl<B> KeyedBody<B> {
    pub(crate) fn read(bytes: Bytes) -> Self {
        let body = Full::new(bytes);
        Self {
            kind: Kind::Read { body },
        }
    }

    pub(crate) fn unread(body: B) -> Self {
        Self {
            kind: Kind::Unread { body },
        }
    }

    /// The body itself, if the layer has not read it.
    pub(super) fn unread_mut(&mut self) -> Option<&mut B> {
        match &mut self.kind {
            Kind::Read { .. } => None,
            Kind::Unread { body } => Some(body),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for KeyedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Read { body } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})))
            }
            KindProj::Unread { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Read { body } => body.is_end_stream(),
            Kind::Unread { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Read { body } => body.size_hint(),
            Kind::Unread { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for KeyedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Read { .. } => "Read",
            Kind::Unread { .. } => "Unread",
        };
        f.debug_tuple("KeyedBody").field(&kind).finish()
    }
}

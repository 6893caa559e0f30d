//! The HTTP service whose requests run under a lock.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::error::BoxError;
use crate::future::{HoldBody, LockFuture};
use crate::key::{Head, KeyedBody, WholeBody};
use crate::settings::Settings;

/// A service whose requests run under a lock. Made by [`LockLayer`](crate::LockLayer).
///
/// It is ready when the inner service is ready. The lock is acquired in the response future, since the key comes from
/// the request. While a request waits, it keeps the inner service that was polled ready, and with it a permit of an
/// inner concurrency limit.
///
/// # Errors
/// The errors of the inner service.
///
/// # Examples
/// ```
/// use std::convert::Infallible;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// use distlock_tower::LockLayer;
/// use http::{Request, Response, request::Parts};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// async fn import(_: Request<()>) -> Result<Response<String>, Infallible> {
///     Ok(Response::new(String::from("done")))
/// }
///
/// let client = distlock::Client::in_memory();
/// let service = ServiceBuilder::new()
///     .layer(LockLayer::new(client).key(|_: &Parts| "import"))
///     .service(service_fn(import));
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockService<S, R = Head> {
    inner: S,
    settings: Arc<Settings>,
    reads: R,
}

impl<S, R> LockService<S, R> {
    pub(crate) fn new(inner: S, settings: Arc<Settings>, reads: R) -> Self {
        Self {
            inner,
            settings,
            reads,
        }
    }
}

impl<S: Clone, R> LockService<S, R> {
    /// Takes the service that was polled ready and leaves a clone. The clone may not be ready, so it must not be
    /// called.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

impl<S, B, D> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response = Response<D>> + Clone,
    B: 'static,
    D: Body,
{
    type Response = Response<HoldBody<D>>;
    type Error = S::Error;
    type Future = LockFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> LockFuture<S, B> {
        LockFuture::new(Arc::clone(&self.settings), self.take_ready(), request)
    }
}

impl<S, B, D> Service<Request<B>> for LockService<S, WholeBody>
where
    S: Service<Request<KeyedBody<B>>, Response = Response<D>> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    D: Body,
{
    type Response = Response<HoldBody<D>>;
    type Error = S::Error;
    type Future = LockFuture<S, KeyedBody<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        LockFuture::with_body(settings, self.take_ready(), request, self.reads)
    }
}

impl<S, R> fmt::Debug for LockService<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.lock.fmt_as("LockService", f)
    }
}

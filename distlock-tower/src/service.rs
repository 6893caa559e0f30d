//! The guarded service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::HoldBody;
use crate::future::LockFuture;
use crate::settings::Settings;

/// A service whose requests run under a lock; made by [`LockLayer`](crate::LockLayer).
///
/// Ready when the inner service is; the lock is acquired by the response future, for only a request has a key. While it
/// waits, it keeps the readiness of the inner service, and with it a place under an inner concurrency limit.
///
/// Its errors are the inner service's own.
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
///     .layer(LockLayer::new(client).key(|parts: &Parts| parts.uri.path().to_owned()))
///     .service(service_fn(import));
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockService<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> LockService<S> {
    pub(crate) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, B, R> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
{
    type Response = Response<HoldBody<R>>;
    type Error = S::Error;
    type Future = LockFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> LockFuture<S, B> {
        // The service that was polled ready goes into the future: a fresh clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        LockFuture::new(Arc::clone(&self.settings), ready, request)
    }
}

impl<S: fmt::Debug> fmt::Debug for LockService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.terms.fmt_as("LockService", f)
    }
}

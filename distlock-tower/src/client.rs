//! The layer that carries a client to the handlers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use distlock::{LockSource, WithClient, with_client};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

/// A layer that carries a client to handlers, as [`with_client`] does for a future: functions with
/// `#[distributed_lock]` that name no client use this one.
///
/// Use it in tests, where the [installed](distlock::Client::install) client belongs to all tests of the process, or in a program in
/// which one router has another lock server than the rest. `axum::serve` runs handlers in separate tasks, which a
/// `with_client` around it does not reach.
///
/// It works for HTTP and for other tower services. It does not reach tasks that a handler spawns, unless they
/// [`inherit`](distlock::inherit), and code that runs while a response body is streamed. In a test,
/// [`Client::install_scoped`](distlock::Client::install_scoped) reaches these as well. A [`LockLayer`](crate::LockLayer) has its own client.
///
/// # Cancel safety
/// Dropping the future of a request drops that of the inner service.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, extract::Path, http::{Request, StatusCode}, routing::post};
/// use distlock::{Client, Error, distributed_lock};
/// use distlock_tower::{ClientLayer, Rejection};
/// use tower::ServiceExt;
///
/// #[distributed_lock(key = "order:<id>", wait = "5s")]
/// async fn pay(id: u64) -> Result<String, Error> {
///     Ok(format!("order {id} is paid"))
/// }
///
/// async fn handler(Path(id): Path<u64>) -> Result<String, StatusCode> {
///     pay(id).await.map_err(|error| Rejection::before_work(error).status()) // not its text, which has the key
/// }
///
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(handler))
///     .layer(ClientLayer::new(Client::in_memory()));
///
/// let request = Request::post("/orders/42/pay").body(axum::body::Body::empty())?;
/// let body = app.oneshot(request).await?.into_body();
/// assert_eq!(axum::body::to_bytes(body, 100).await?, "order 42 is paid");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct ClientLayer {
    client: LockSource,
}

impl ClientLayer {
    /// Creates a layer that carries `client`: a [`Client`](distlock::Client), a [`Quorum`](distlock::Quorum), or a reference to one.
    ///
    /// # Examples
    /// See [`ClientLayer`].
    pub fn new(client: impl Into<LockSource>) -> Self {
        let client = client.into();
        Self { client }
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        ClientService {
            client: self.client.clone(),
            inner,
        }
    }
}

/// A service whose requests have a client; made by [`ClientLayer`].
///
/// # Examples
/// See [`ClientLayer`].
#[derive(Clone)]
pub struct ClientService<S> {
    client: LockSource,
    inner: S,
}

impl<R, S: Service<R>> Service<R> for ClientService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ClientFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> ClientFuture<S::Future> {
        ClientFuture {
            inner: with_client(&self.client, self.inner.call(request)),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for ClientService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientService")
            .field("client", &self.client)
            .field("inner", &self.inner)
            .finish()
    }
}

pin_project! {
    /// The future of a [`ClientService`].
    ///
    /// # Cancel safety
    /// Dropping it drops the future of the inner service.
    ///
    /// # Examples
    /// See [`ClientLayer`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct ClientFuture<F> {
        #[pin]
        inner: WithClient<F>,
    }
}

impl<F: Future> Future for ClientFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().inner.poll(cx)
    }
}

impl<F> fmt::Debug for ClientFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFuture").finish_non_exhaustive()
    }
}

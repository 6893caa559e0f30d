//! Handlers that run to completion even if their client disconnects: each request runs in a task, together with its
//! hold.
//!
//! # Invariants
//! 1. Once the lock is held, the task runs until the handler has ended and the release is confirmed.
//! 2. Before that, the task ends when the caller's future is dropped, so that the request leaves the queue.

use std::fmt;
use std::future::poll_fn;
use std::panic;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower_layer::Layer;
use tower_service::Service;

use super::LockLayer;
use crate::error::BoxError;
use crate::future::{HoldBody, LockFuture};
use crate::key::{Head, KeyedBody, WholeBody};
use crate::service::LockService;
use crate::span::in_current_span;

/// A [`LockLayer`] whose handlers run to completion even if their client disconnects. Made by
/// [`LockLayer::run_to_completion`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), std::convert::Infallible> {
/// use distlock_tower::{CompletingLayer, LockLayer};
/// use http::{Request, Response, request::Parts};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let client = distlock::Client::in_memory();
/// let layer: CompletingLayer = LockLayer::new(&client).key(|_: &Parts| "import").run_to_completion();
/// let import = service_fn(async |_: Request<()>| {
///     tokio::task::yield_now().await;
///     println!("imported");
///     Ok::<_, std::convert::Infallible>(Response::new(String::from("done")))
/// });
/// let response = layer.layer(import).oneshot(Request::new(())).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct CompletingLayer<R = Head>(LockLayer<R>);

impl<R> CompletingLayer<R> {
    pub(crate) fn new(layer: LockLayer<R>) -> Self {
        Self(layer)
    }
}

impl<S, R: Copy> Layer<S> for CompletingLayer<R> {
    type Service = CompletingService<S, R>;

    fn layer(&self, inner: S) -> CompletingService<S, R> {
        CompletingService(self.0.layer(inner))
    }
}

/// A [`LockService`] that handles each request in a separate task. Made by [`CompletingLayer`].
///
/// # Errors
/// The errors of the inner service.
///
/// # Examples
/// See [`CompletingLayer`].
#[derive(Clone, Debug)]
pub struct CompletingService<S, R = Head>(LockService<S, R>);

impl<S, B, D> Service<Request<B>> for CompletingService<S>
where
    S: Service<Request<B>, Response = Response<D>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    D: Body + Send + 'static,
{
    type Response = Response<HoldBody<D>>;
    type Error = S::Error;
    type Future = CompletingFuture<Response<HoldBody<D>>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        CompletingFuture::new(self.0.call(request))
    }
}

impl<S, B, D> Service<Request<B>> for CompletingService<S, WholeBody>
where
    S: Service<Request<KeyedBody<B>>, Response = Response<D>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    D: Body + Send + 'static,
{
    type Response = Response<HoldBody<D>>;
    type Error = S::Error;
    type Future = CompletingFuture<Response<HoldBody<D>>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        CompletingFuture::new(self.0.call(request))
    }
}

/// Drives a request to its end. Gives it up, with `None`, if the caller is dropped before the lock is held.
async fn complete<S, B>(
    handling: LockFuture<S, B>,
    mut caller_dropped: oneshot::Receiver<()>,
) -> Option<<LockFuture<S, B> as Future>::Output>
where
    S: Service<Request<B>>,
    LockFuture<S, B>: Future,
{
    let mut handling = pin!(handling);
    poll_fn(|cx| {
        // Only while the lock is not held, because the handler then runs to completion (invariant 1). Before the poll that may
        // acquire the lock and start the handler (invariant 2).
        if handling.is_entering() && Pin::new(&mut caller_dropped).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        handling.as_mut().poll(cx).map(Some)
    })
    .await
}

type Output<T, E> = Option<Result<T, E>>;

enum Stage<T, E> {
    New(BoxFuture<'static, Output<T, E>>),
    Spawned(JoinHandle<Output<T, E>>),
    /// The task ended with its runtime, without an output.
    Cancelled,
    Done,
}

/// The response future of a [`CompletingService`].
///
/// # Cancel safety
/// Dropping the future while it waits for the lock gives up the request's place in line. Dropping it later does not
/// stop the handler, which runs to completion under the lock; its response is dropped.
///
/// # Panics
/// A panic of the handler is resumed in the caller. Outside a tokio runtime, the first poll panics. A poll after the
/// completion panics too, as for [all futures](distlock#panics).
///
/// # Examples
/// See [`CompletingLayer`].
#[must_use = "futures do nothing unless awaited"]
pub struct CompletingFuture<T, E> {
    stage: Stage<T, E>,
    /// No value is sent. Dropping it tells the task that the caller was dropped.
    _caller: oneshot::Sender<()>,
}

impl<T: Send + 'static, E: Send + 'static> Future for CompletingFuture<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        loop {
            match &mut self.stage {
                Stage::New(_) => self.spawn(),
                Stage::Spawned(task) => {
                    let ended = ready!(Pin::new(task).poll(cx));
                    self.stage = Stage::Done;
                    match ended.map_err(|error| error.try_into_panic()) {
                        Ok(Some(output)) => return Poll::Ready(output),
                        Err(Ok(panic)) => panic::resume_unwind(panic),
                        // The task was cancelled, because the runtime shuts down: this future is about to be dropped too.
                        // The task gives up by itself only after `_caller` is dropped, and this future still has it.
                        Ok(None) | Err(Err(_)) => self.stage = Stage::Cancelled,
                    }
                }
                Stage::Cancelled => return Poll::Pending,
                // Pending would hang the caller's task. The futures of `std` and of tokio panic as well.
                Stage::Done => panic!("`CompletingFuture` was polled after its completion"),
            }
        }
    }
}

impl<T: Send + 'static, E: Send + 'static> CompletingFuture<T, E> {
    fn new<S, B>(handling: LockFuture<S, B>) -> Self
    where
        S: Service<Request<B>>,
        LockFuture<S, B>: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (caller, caller_dropped) = oneshot::channel();
        Self {
            stage: Stage::New(Box::pin(complete(handling, caller_dropped))),
            _caller: caller,
        }
    }

    /// Spawns the task. This happens at the first poll and not in `call`, because the scopes and the span of the code
    /// that polls are those around the request.
    fn spawn(&mut self) {
        if let Stage::New(work) = std::mem::replace(&mut self.stage, Stage::Done) {
            let work = in_current_span(distlock::inherit(work));
            self.stage = Stage::Spawned(tokio::spawn(work));
        }
    }
}

impl<T, E> fmt::Debug for CompletingFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::New(_) => "New",
            Stage::Spawned(_) => "Spawned",
            Stage::Cancelled => "Cancelled",
            Stage::Done => "Done",
        };
        f.debug_tuple("CompletingFuture").field(&stage).finish()
    }
}

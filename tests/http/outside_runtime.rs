//! A response body that has the hold, read outside a tokio runtime.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::Request;
use axum::routing::get;
use distlock::Client;
use distlock_tests::{RedisServer, eventually};
use distlock_tower::{HoldUntil, LockLayer};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tower::ServiceExt as _;

struct Export {
    _redis: RedisServer,
    locks: Client,
}

impl Export {
    async fn start() -> Self {
        let redis = RedisServer::start().await;
        let locks = Client::connect(&redis.url()).await.unwrap();
        Self {
            _redis: redis,
            locks,
        }
    }

    /// The response body of a handler that answers with this one. It has the hold.
    async fn holding(&self, body: Body) -> Body {
        let layer = LockLayer::new(&self.locks)
            .key_template("export")
            .hold_until(HoldUntil::Body);
        let body = Arc::new(Mutex::new(Some(body)));
        let answer = move || ready(body.lock().unwrap().take().unwrap());
        let app: Router = Router::new().route("/", get(answer).route_layer(layer));
        let request = Request::get("/").body(Body::empty()).unwrap();
        let body = app.oneshot(request).await.unwrap().into_body();
        assert!(self.locks.lock("export").is_locked().await.unwrap());
        body
    }

    async fn is_freed(&self) {
        let freed = || async {
            let lock = self.locks.lock("export");
            let is_locked = lock.is_locked().await.unwrap();
            (!is_locked).then_some(()).ok_or(())
        };
        eventually(Duration::from_secs(20), "the lock is free", freed).await;
    }
}

/// Polls the body for its next frame, outside a runtime.
fn poll_data(body: &mut Body) -> Poll<Bytes> {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut cx) {
        Poll::Ready(Some(Ok(frame))) => Poll::Ready(frame.into_data().unwrap()),
        Poll::Pending => Poll::Pending,
        other => panic!("{other:?}"),
    }
}

async fn by_a_plain_thread<R: Send + 'static>(read: impl FnOnce() -> R + Send + 'static) -> R {
    let reading = thread::spawn(read);
    spawn_blocking(|| reading.join().unwrap()).await.unwrap()
}

#[tokio::test]
async fn sized_body_that_is_read_by_a_plain_thread_frees_its_lock_in_redis() {
    let export = Export::start().await;
    let mut body = export.holding(Body::from("done")).await;
    let data = by_a_plain_thread(move || poll_data(&mut body)).await;
    assert_eq!(data, Poll::Ready("done".into()));
    export.is_freed().await;
}

#[tokio::test]
async fn body_that_a_plain_thread_waits_for_frees_its_lock_in_redis() {
    let export = Export::start().await;
    let (send, mut pieces) = mpsc::channel::<&str>(1);
    let streamed = stream::poll_fn(move |cx| {
        pieces
            .poll_recv(cx)
            .map(|piece| piece.map(Ok::<_, Infallible>))
    });
    let mut body = export.holding(Body::from_stream(streamed)).await;
    let mut body = by_a_plain_thread(move || {
        assert!(poll_data(&mut body).is_pending());
        send.try_send("done").unwrap();
        assert_eq!(poll_data(&mut body), Poll::Ready("done".into()));
        assert!(poll_data(&mut body).is_pending());
        body
    })
    .await;
    // The channel has been closed.
    let end = by_a_plain_thread(move || {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None))
    });
    assert!(end.await);
    export.is_freed().await;
}

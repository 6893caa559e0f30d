//! A response body that has the hold, read outside a tokio runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::Request;
use axum::routing::get;
use distlock::Client;
use distlock_tests::{RedisServer, eventually};
use distlock_tower::{HoldUntil, LockLayer};
use tower::ServiceExt as _;

#[tokio::test]
async fn sized_body_that_is_read_by_a_plain_thread_frees_its_lock_in_redis() {
    let redis = RedisServer::start().await;
    let locks = Client::connect(&redis.url()).await.unwrap();
    let layer = LockLayer::new(&locks)
        .key_template("export")
        .hold_until(HoldUntil::Body);
    let app: Router = Router::new().route("/", get(async || "done").route_layer(layer));
    let request = Request::get("/").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await;
    let body = response.unwrap().into_body();
    assert!(locks.lock("export").is_locked().await.unwrap());

    let reading = std::thread::spawn(|| {
        let mut body = pin!(body);
        let mut cx = Context::from_waker(Waker::noop());
        match body.as_mut().poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap(),
            other => panic!("{other:?}"),
        }
    });
    let data = tokio::task::spawn_blocking(|| reading.join().unwrap());
    assert_eq!(data.await.unwrap(), "done");
    let freed = || async {
        (!locks.lock("export").is_locked().await.unwrap())
            .then_some(())
            .ok_or(())
    };
    eventually(Duration::from_secs(20), "the lock is free", freed).await;
}

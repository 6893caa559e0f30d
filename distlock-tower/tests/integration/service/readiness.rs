//! Readiness: the inner service that was polled ready is called, and `poll_ready` does not wait for a lock.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use distlock::Client;
use http::{Request, Response};
use tokio::sync::mpsc;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

use super::{Text, by_path, locked, text, to};
use crate::support::eventually;

/// Ready for one call after each `poll_ready`, like `Buffer` and `ConcurrencyLimit`. A clone is not ready.
pub(crate) struct OncePerPoll {
    pub(crate) ready: bool,
    pub(crate) calls: mpsc::UnboundedSender<()>,
}

impl Clone for OncePerPoll {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<()>> for OncePerPoll {
    type Response = Response<Text>;
    type Error = BoxError;
    type Future = Ready<Result<Response<Text>, BoxError>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called when not ready");
        self.calls.send(()).unwrap();
        ready(Ok(text("done")))
    }
}

#[tokio::test]
async fn calls_the_inner_service_that_was_polled_ready() {
    let client = Client::in_memory();
    let (calls, mut called) = mpsc::unbounded_channel();
    let mut service = by_path(&client).layer(OncePerPoll {
        ready: false,
        calls,
    });
    for _ in 0..3 {
        service.ready().await.unwrap().call(to("/k")).await.unwrap();
        assert!(called.try_recv().is_ok());
    }
}

#[tokio::test]
async fn buffer_and_concurrency_limit_inside_and_outside() {
    let client = Client::in_memory();
    let (calls, _called) = mpsc::unbounded_channel();
    let service = ServiceBuilder::new()
        .buffer(4)
        .concurrency_limit(3)
        .layer(by_path(&client))
        .buffer(4)
        .concurrency_limit(1)
        .service(OncePerPoll {
            ready: false,
            calls,
        });
    let requests = (0..20).map(|n| service.clone().oneshot(to(["/a", "/b"][n % 2])));
    for response in futures_util::future::join_all(requests).await {
        assert_eq!(response.unwrap().status(), 200);
    }
    assert!(!locked(&client, "a").await && !locked(&client, "b").await);
}

#[tokio::test]
async fn waits_in_the_future_and_not_in_poll_ready() {
    let client = Client::in_memory();
    let _guard = client.lock("k").acquire().await.unwrap();
    let (calls, mut called) = mpsc::unbounded_channel();
    let mut service = by_path(&client).layer(OncePerPoll {
        ready: false,
        calls,
    });
    let waiting = tokio::spawn(service.ready().await.unwrap().call(to("/k")));
    eventually("the request waits", async || {
        distlock::test_util::sizes(&client).waiters == 1
    })
    .await;
    service
        .ready()
        .await
        .unwrap()
        .call(to("/other"))
        .await
        .unwrap();
    assert!(called.try_recv().is_ok());
    client.lock("k").force_release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(called.try_recv().is_ok());
}

//! `run_to_completion`: handlers that complete even if their caller is gone.

use std::convert::Infallible;
use std::pin::pin;

use bytes::Bytes;
use distlock::Client;
use distlock::test_util::sizes;
use distlock_tower::{CompletingLayer, HoldUntil, LockLayer};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;
use tower::{Layer, Service as _, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{SEC, eventually, freed, http_client};

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|_: &Parts| "k").wait(60 * SEC)
}

fn completing(client: &Client) -> CompletingLayer {
    layer(client).run_to_completion()
}

fn done() -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("done")))
}

async fn locked(client: &Client) -> bool {
    client.lock("k").is_locked().await.unwrap()
}

#[tokio::test]
async fn caller_that_stays_gets_the_response_after_the_release() {
    let client = Client::in_memory();
    let owned = client.clone();
    let service = completing(&client).layer(service_fn(move |_: Request<()>| {
        let client = owned.clone();
        async move {
            assert!(locked(&client).await);
            // The task runs inside the scope.
            assert!(client.lock("k").try_acquire().await.unwrap().is_some());
            done()
        }
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert!(!locked(&client).await);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "done"
    );
}

#[test]
fn caller_whose_task_ended_with_its_runtime_stays_pending() {
    let client = Client::in_memory();
    let runtime = || tokio::runtime::Builder::new_current_thread().build();
    let mut service = completing(&client).layer(service_fn(async |_: Request<()>| {
        std::future::pending::<()>().await;
        done()
    }));
    let mut response = pin!(service.call(Request::new(())));
    let first = runtime().unwrap();
    assert!(first.block_on(async { response.as_mut().now_or_never().is_none() }));
    drop(first);
    for _ in 0..2 {
        let later = runtime().unwrap();
        assert!(later.block_on(async { response.as_mut().now_or_never().is_none() }));
    }
}

#[tokio::test]
async fn caller_dropped_while_the_handler_runs_does_not_stop_it() {
    let client = Client::in_memory();
    let (started, mut starts) = mpsc::unbounded_channel();
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let (ended, mut ends) = mpsc::unbounded_channel();
    let owned = client.clone();
    let handler = service_fn(move |_: Request<()>| {
        let (started, mut gate, ended) = (started.clone(), gate.clone(), ended.clone());
        let client = owned.clone();
        async move {
            started.send(()).unwrap();
            gate.wait_for(|open| *open).await.unwrap();
            ended.send(locked(&client).await).unwrap();
            done()
        }
    });
    let mut caller = Box::pin(completing(&client).layer(handler).oneshot(Request::new(())));
    tokio::select! {
        _ = &mut caller => unreachable!("the gate is closed"),
        started = starts.recv() => started.unwrap(),
    }
    drop(caller);
    // Gives the task a chance to notice. No condition is waited for here.
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    go_on.send(true).unwrap();
    assert_eq!(ends.recv().await, Some(true));
    freed(&client, "k").await;
}

#[tokio::test]
async fn caller_dropped_while_waiting_leaves_the_queue() {
    let client = Client::in_memory();
    let taken = client.lock("k").acquire().await.unwrap();
    let never = service_fn(
        async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> {
            unreachable!("the caller is gone")
        },
    );
    let caller = tokio::spawn(completing(&client).layer(never).oneshot(Request::new(())));
    eventually("the request waits", async || sizes(&client).waiters == 1).await;
    caller.abort();
    eventually("no request waits", async || sizes(&client).waiters == 0).await;
    taken.release().await.unwrap();
    freed(&client, "k").await;
}

/// A request to a handler that sends a message when it starts. The sender is dropped with the task of the request.
fn request_that_tells(
    client: &Client,
) -> (
    impl Future<Output = Result<impl Sized, Infallible>>,
    mpsc::UnboundedReceiver<()>,
) {
    let (started, starts) = mpsc::unbounded_channel();
    let service = completing(client).layer(service_fn(move |_: Request<()>| {
        started.send(()).unwrap();
        async { done() }
    }));
    (service.oneshot(Request::new(())), starts)
}

#[tokio::test]
async fn caller_dropped_before_its_task_first_runs_starts_no_handler() {
    let client = Client::in_memory();
    let (caller, mut starts) = request_that_tells(&client);
    // Polls once, and drops.
    assert!(caller.now_or_never().is_none());
    assert_eq!(starts.recv().await, None);
    freed(&client, "k").await;
}

#[tokio::test]
async fn caller_dropped_while_its_grant_is_on_the_way_starts_no_handler() {
    let client = Client::in_memory();
    let taken = client.lock("k").acquire().await.unwrap();
    let (caller, mut starts) = request_that_tells(&client);
    let mut caller = Box::pin(caller);
    assert!(caller.as_mut().now_or_never().is_none());
    eventually("the request waits", async || sizes(&client).waiters == 1).await;
    // Without a pause between the two, in which the task would run.
    taken.release().now_or_never().unwrap().unwrap();
    drop(caller);
    assert_eq!(starts.recv().await, None);
    freed(&client, "k").await;
}

#[tokio::test]
async fn caller_that_never_polls_starts_nothing() {
    let client = Client::in_memory();
    let never = service_fn(
        async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> {
            unreachable!("the future was not polled")
        },
    );
    let mut service = completing(&client).layer(never);
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    drop(tower::Service::call(&mut service, Request::new(())));
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        tasks
    );
    assert!(!locked(&client).await);
}

#[tokio::test]
async fn panic_reaches_the_caller_and_frees_the_lock() {
    let client = Client::in_memory();
    let panics = service_fn(async |request: Request<()>| {
        if request.uri() == "/" {
            panic!("on purpose");
        }
        done()
    });
    let call = completing(&client).layer(panics).oneshot(Request::new(()));
    let panic = std::panic::AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "on purpose");
    freed(&client, "k").await;
}

#[tokio::test]
async fn task_inherits_the_scopes_of_the_request() {
    let client = Client::in_memory();
    let owned = client.clone();
    let handler = service_fn(move |_: Request<()>| {
        let client = owned.clone();
        async move {
            assert!(client.lock("outer").try_acquire().await.unwrap().is_some());
            done()
        }
    });
    let service = ServiceBuilder::new()
        .layer(LockLayer::new(&client).key(|_: &Parts| "outer"))
        .layer(completing(&client))
        .service(handler);
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap().status(),
        200
    );
    assert!(client.lock("outer").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn task_inherits_with_client_of_the_request() {
    #[distlock::distributed_lock(key = "inner")]
    async fn annotated(client: &Client) -> Result<bool, distlock::Error> {
        client.lock("inner").is_locked().await
    }

    let client = Client::in_memory();
    let owned = client.clone();
    let service = completing(&client).layer(service_fn(move |_: Request<()>| {
        let client = owned.clone();
        async move {
            assert!(annotated(&client).await.unwrap());
            done()
        }
    }));
    let call = distlock::with_client(&client, service.oneshot(Request::new(())));
    assert_eq!(call.await.unwrap().status(), 200);
}

#[tokio::test]
async fn hold_until_body_ends_when_the_caller_drops_the_body() {
    let client = Client::in_memory();
    let layer = layer(&client).hold_until(HoldUntil::Body);
    let service = layer
        .run_to_completion()
        .layer(service_fn(async |_: Request<()>| done()));
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert!(locked(&client).await);
    drop(response);
    freed(&client, "k").await;
}

/// Sends a message when it is dropped.
#[cfg(feature = "axum")]
struct DropNotice(mpsc::UnboundedSender<()>);

#[cfg(feature = "axum")]
impl Drop for DropNotice {
    fn drop(&mut self) {
        let _receiver_gone = self.0.send(());
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn client_disconnect_does_not_stop_a_completing_handler() {
    use axum::Router;
    use axum::extract::Request;
    use axum::middleware::{Next, from_fn};
    use axum::routing::post;

    let client = Client::in_memory();
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let (ended, mut ends) = mpsc::unbounded_channel();
    let handler = post(async move || {
        let mut gate = gate.clone();
        gate.wait_for(|open| *open).await.unwrap();
        ended.send(distlock::is_held("k")).unwrap();
    });
    let (disconnected, mut disconnects) = mpsc::unbounded_channel();
    let watch = from_fn(move |request: Request, next: Next| {
        let notice = DropNotice(disconnected.clone());
        async move {
            let _notice = notice;
            next.run(request).await
        }
    });
    let app = Router::new()
        .route("/", handler.route_layer(completing(&client)))
        .layer(watch);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });

    let request = tokio::spawn(http_client().post(url).send());
    eventually("locked", async || locked(&client).await).await;
    request.abort();
    assert!(request.await.is_err());
    // The server has noticed the disconnect.
    disconnects.recv().await.unwrap();
    assert!(locked(&client).await);
    go_on.send(true).unwrap();
    let ended = tokio::time::timeout(crate::support::DEADLINE, ends.recv()).await;
    assert_eq!(ended.unwrap(), Some(true));
    freed(&client, "k").await;
}

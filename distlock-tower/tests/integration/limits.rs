//! Limits: `max_waiters`, `max_pending_requests` and `max_hold`.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use distlock::test_util::sizes;
use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{BoxError, HoldUntil, LockLayer, Reason};
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC, eventually, freed};

/// A layer whose key is the path.
fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client)
        .key_template("<uri.path>")
        .wait(60 * SEC)
}

async fn send(layer: LockLayer, path: &'static str) -> Answer {
    let done = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    });
    let request = Request::get(path).body(()).unwrap();
    Answer::of(layer.layer(done).oneshot(request).await.unwrap()).await
}

/// Starts requests, and returns when all of them wait for their locks.
async fn start_waiting(
    client: &Client,
    layer: &LockLayer,
    paths: &[&'static str],
) -> JoinSet<Answer> {
    let mut requests = JoinSet::new();
    for path in paths {
        requests.spawn(send(layer.clone(), path));
    }
    let all_wait = async || sizes(client).waiters == paths.len();
    eventually("all requests wait", all_wait).await;
    requests
}

async fn all_done(requests: JoinSet<Answer>) {
    for answer in requests.join_all().await {
        assert_eq!(answer.text, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn longest_duration_means_waiting_and_holding_without_limit() {
    let client = Client::builder()
        .max_hold(SEC)
        .in_memory(&MemoryServer::new());
    let client = client.unwrap();
    let layer = layer(&client).wait(Duration::MAX).max_hold(Duration::MAX);
    let taken = client.lock("/a").acquire().max_hold(Duration::MAX).await;
    let waiting = start_waiting(&client, &layer, &["/a"]).await;
    tokio::time::sleep(3600 * SEC).await;
    taken.unwrap().release().await.unwrap();
    all_done(waiting).await;
    let slow = layer.layer(service_fn(async |_: Request<()>| {
        tokio::time::sleep(3600 * SEC).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    }));
    let request = Request::get("/a").body(()).unwrap();
    assert_eq!(slow.oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn request_over_max_waiters_is_refused_at_once_and_other_keys_are_not() {
    let client = Client::in_memory();
    let layer = layer(&client).max_waiters(2);
    let taken = client.lock("/a").acquire().await.unwrap();
    let waiting = start_waiting(&client, &layer, &["/a", "/a"]).await;
    let refused = send(layer.clone(), "/a").await;
    refused.is_problem("overloaded", 503, true);
    assert_eq!(refused.retry_after, Some(1));
    assert_eq!(send(layer.clone(), "/b").await.status, 200);
    taken.release().await.unwrap();
    all_done(waiting).await;
    assert_eq!(send(layer, "/a").await.status, 200);
}

#[tokio::test]
async fn request_over_max_pending_is_refused_unless_its_lock_is_free() {
    let client = Client::in_memory();
    let layer = layer(&client).max_pending_requests(2);
    let a = client.lock("/a").acquire().await.unwrap();
    let b = client.lock("/b").acquire().await.unwrap();
    // All clones of a layer share the limit, whatever their other settings are.
    let clone = layer.clone().max_waiters(9);
    let waiting = start_waiting(&client, &clone, &["/a", "/b"]).await;
    for path in ["/a", "/b"] {
        send(layer.clone(), path)
            .await
            .is_problem("overloaded", 503, true);
    }
    assert_eq!(send(layer.clone(), "/c").await.status, 200);
    a.release().await.unwrap();
    b.release().await.unwrap();
    all_done(waiting).await;
    // The requests that have ended are not pending any more.
    let a = client.lock("/a").acquire().await.unwrap();
    let waiting = start_waiting(&client, &layer, &["/a", "/a"]).await;
    a.release().await.unwrap();
    all_done(waiting).await;
}

#[tokio::test(start_paused = true)]
async fn request_over_max_pending_makes_one_attempt_at_a_silent_server() {
    let faults = Faults::new();
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let layer = layer(&client).max_pending_requests(0);
    faults.always(Op::Attempt, Fault::FailBefore);
    let since = tokio::time::Instant::now();
    send(layer.clone(), "/a")
        .await
        .is_problem("unavailable", 503, true);
    assert!(since.elapsed() < SEC / 10, "{:?}", since.elapsed());
    assert_eq!(faults.hits(Op::Attempt), 1);
    // A request within the limit retries, and is pending meanwhile.
    let patient = layer.max_pending_requests(1);
    send(patient, "/a")
        .await
        .is_problem("unavailable", 503, true);
    assert!(faults.hits(Op::Attempt) > 2);
}

#[tokio::test]
async fn dropped_requests_are_no_longer_pending() {
    let client = Client::in_memory();
    let layer = layer(&client).max_pending_requests(1);
    let taken = client.lock("/a").acquire().await.unwrap();
    start_waiting(&client, &layer, &["/a"])
        .await
        .shutdown()
        .await;
    let waiting = start_waiting(&client, &layer, &["/a"]).await;
    taken.release().await.unwrap();
    all_done(waiting).await;
}

/// A client with settings of its own, and a layer that sets none.
fn of_client(client: distlock::Builder) -> (Client, LockLayer) {
    let client = client.in_memory(&MemoryServer::new()).unwrap();
    let layer = LockLayer::new(&client).key_template("<uri.path>");
    (client, layer)
}

#[tokio::test]
async fn max_waiters_of_the_client_hold_for_a_layer_without_its_own() {
    let (client, layer) = of_client(Client::builder().max_waiters(1));
    let taken = client.lock("/a").acquire().await.unwrap();
    let waiting = start_waiting(&client, &layer, &["/a"]).await;
    let refused = send(layer.clone(), "/a").await;
    refused.is_problem("overloaded", 503, true);
    // A limit of the layer is used instead.
    let second = start_waiting(&client, &layer.max_waiters(2), &["/a"]).await;
    taken.release().await.unwrap();
    all_done(waiting).await;
    all_done(second).await;
}

#[tokio::test(start_paused = true)]
async fn wait_of_the_client_holds_for_a_layer_without_its_own() {
    for (wait, ends_after) in [(2 * SEC, 2 * SEC), (Duration::ZERO, Duration::ZERO)] {
        let (client, layer) = of_client(Client::builder().default_wait(wait));
        let _taken = client.lock("/a").acquire().await.unwrap();
        let since = tokio::time::Instant::now();
        let pending = layer.clone().max_pending_requests(1);
        send(pending, "/a").await.is_problem("busy", 409, true);
        assert_eq!(since.elapsed().as_secs(), ends_after.as_secs());
        // Without a wait, a request is never pending.
        let full = send(layer.clone().max_pending_requests(0), "/a").await;
        let reason = if wait.is_zero() {
            ("busy", 409)
        } else {
            ("overloaded", 503)
        };
        full.is_problem(reason.0, reason.1, true);
        let since = tokio::time::Instant::now();
        send(layer.wait(SEC), "/a")
            .await
            .is_problem("busy", 409, true);
        assert_eq!(since.elapsed().as_secs(), 1);
    }
    let (client, layer) = of_client(Client::builder().default_wait(Duration::MAX));
    let _taken = client.lock("/a").acquire().await.unwrap();
    let forever = tokio::time::timeout(3600 * SEC, send(layer, "/a"));
    assert!(forever.await.is_err());
}

#[tokio::test]
async fn max_waiters_is_1024_by_default() {
    let client = Client::in_memory();
    let layer = layer(&client);
    let taken = client.lock("/a").acquire().await.unwrap();
    let waiting = start_waiting(&client, &layer, &["/a"; 1024]).await;
    send(layer, "/a").await.is_problem("overloaded", 503, true);
    taken.release().await.unwrap();
    all_done(waiting).await;
}

#[tokio::test]
async fn zero_wait_is_busy_and_never_overloaded() {
    let client = Client::in_memory();
    let _taken = client.lock("/a").acquire().await.unwrap();
    let layer = layer(&client).max_waiters(0).max_pending_requests(0);
    let at_once = layer.clone().wait(std::time::Duration::ZERO);
    send(at_once, "/a").await.is_problem("busy", 409, true);
    send(layer.clone(), "/a")
        .await
        .is_problem("overloaded", 503, true);
    assert_eq!(send(layer, "/b").await.status, 200);
}

#[tokio::test]
async fn on_reject_and_grpc_report_overload() {
    let client = Client::in_memory();
    let _taken = client.lock("/a").acquire().await.unwrap();
    let layer = layer(&client).max_waiters(0);
    let own = layer.clone().on_reject(|rejection| {
        assert_eq!(rejection.reason(), Reason::Overloaded);
        assert!(
            rejection
                .error()
                .is_some_and(distlock::Error::is_overloaded)
        );
        Response::new(Full::<Bytes>::from("come back later"))
    });
    assert_eq!(send(own, "/a").await.text, "come back later");

    let never = service_fn(
        async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> {
            unreachable!("the lock is taken")
        },
    );
    let grpc = Request::post("/a").header("content-type", "application/grpc");
    let response = layer
        .layer(never)
        .oneshot(grpc.body(()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.headers()["grpc-status"], "8");
}

#[tokio::test(start_paused = true)]
async fn handler_over_max_hold_is_dropped_although_its_lock_is_renewed() {
    let client = Client::in_memory();
    let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let stuck = service_fn(move |_: Request<()>| {
        let alive = alive.clone();
        async move {
            let _alive = alive;
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        }
    });
    let since = tokio::time::Instant::now();
    let service = layer(&client).max_hold(100 * SEC).layer(stuck);
    let response = service.oneshot(Request::get("/a").body(()).unwrap());
    let response = tokio::time::timeout(200 * SEC, response).await.unwrap();
    Answer::of(response.unwrap())
        .await
        .is_problem("lost", 500, false);
    assert!((100 * SEC..101 * SEC).contains(&since.elapsed()));
    assert!(ended.recv().await.is_none());
    freed(&client, "/a").await;
}

#[tokio::test(start_paused = true)]
async fn body_read_too_slowly_ends_in_an_error() {
    let client = Client::in_memory();
    let endless = service_fn(async |_: Request<()>| {
        let frames = stream::repeat_with(|| Ok::<_, BoxError>(Frame::data(Bytes::from("x"))));
        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
    });
    let service = layer(&client)
        .hold_until(HoldUntil::Body)
        .max_hold(100 * SEC)
        .layer(endless);
    let response = service.oneshot(Request::get("/a").body(()).unwrap()).await;
    let mut body = response.unwrap().into_body();
    let mut read = 0;
    let error = loop {
        match body.frame().await.unwrap() {
            Ok(_) if read < 200 => read += 1,
            Ok(_) => panic!("the body did not end"),
            Err(error) => break error,
        }
        tokio::time::sleep(SEC).await;
    };
    assert!((99..=101).contains(&read), "{read}");
    assert!(error.downcast_ref::<distlock::Error>().unwrap().is_lost());
    assert!(body.frame().await.is_none());
    freed(&client, "/a").await;
}

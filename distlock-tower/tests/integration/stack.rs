//! The layer among other layers, inside and outside of it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use distlock::Client;
use distlock::test_util::sizes;
use distlock_tower::{BoxError, HoldUntil, LockLayer};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;

use crate::support::{SEC, freed};

type Answered = Result<Response<Full<Bytes>>, Infallible>;

/// A layer whose key is the path.
fn lock(client: &Client) -> LockLayer {
    LockLayer::new(client)
        .key_template("<uri.path>")
        .wait(60 * SEC)
}

fn to(path: &str) -> Request<Full<Bytes>> {
    Request::post(path).body(Full::default()).unwrap()
}

/// A handler that re-enters its own lock and responds with the hold count.
fn again(
    client: &Client,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let client = client.clone();
    service_fn(move |request: Request<Full<Bytes>>| {
        let lock = client.lock(request.uri().path());
        async move {
            tokio::task::yield_now().await;
            let _again = lock.acquire().wait(Duration::ZERO).await.unwrap();
            let count = lock.hold_count().await.unwrap();
            Answered::Ok(Response::new(Full::from(count.to_string())))
        }
    })
}

async fn text<B>(response: Response<B>) -> Bytes
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    response.into_body().collect().await.unwrap().to_bytes()
}

fn is_elapsed(error: &BoxError) -> bool {
    error.is::<Elapsed>()
}

#[tokio::test(start_paused = true)]
async fn timeout_outside_counts_the_wait_and_leaves_the_queue() {
    let client = Client::in_memory();
    let taken = client.lock("/k").acquire().await.unwrap();
    let service = ServiceBuilder::new()
        .timeout(5 * SEC)
        .layer(lock(&client))
        .service(again(&client));
    let error = service.clone().oneshot(to("/k")).await.unwrap_err();
    assert!(is_elapsed(&error), "{error}");
    assert_eq!(sizes(&client).waiters, 0);
    taken.release().await.unwrap();
    assert_eq!(text(service.oneshot(to("/k")).await.unwrap()).await, "2");
}

#[tokio::test(start_paused = true)]
async fn timeout_outside_drops_the_handler_and_ends_its_hold() {
    let client = Client::in_memory();
    let service = ServiceBuilder::new()
        .timeout(5 * SEC)
        .layer(lock(&client))
        .service(service_fn(async |_: Request<Full<Bytes>>| {
            std::future::pending::<Answered>().await
        }));
    let error = service.oneshot(to("/k")).await.unwrap_err();
    assert!(is_elapsed(&error), "{error}");
    freed(&client, "/k").await;
}

#[tokio::test(start_paused = true)]
async fn timeout_inside_counts_only_the_handler() {
    let client = Client::in_memory();
    let service = ServiceBuilder::new()
        .layer(lock(&client))
        .timeout(5 * SEC)
        .service(again(&client));
    let taken = client.lock("/k").acquire().await.unwrap();
    let freed_later = async {
        tokio::time::sleep(20 * SEC).await;
        taken.release().await.unwrap();
    };
    let (response, ()) = tokio::join!(service.oneshot(to("/k")), freed_later);
    assert_eq!(text(response.unwrap()).await, "2");

    let stuck = ServiceBuilder::new()
        .layer(lock(&client))
        .timeout(5 * SEC)
        .service(service_fn(async |_: Request<Full<Bytes>>| {
            std::future::pending::<Answered>().await
        }));
    let error = stuck.oneshot(to("/k")).await.unwrap_err();
    assert!(is_elapsed(&error), "{error}");
    // The error is returned after the release.
    assert!(!client.lock("/k").is_locked().await.unwrap());
}

#[tokio::test]
async fn panic_caught_inside_or_outside_is_500_and_frees_the_lock() {
    let client = Client::in_memory();
    let panics =
        || service_fn(async |_: Request<Full<Bytes>>| -> Answered { panic!("on purpose") });
    for until in [HoldUntil::Response, HoldUntil::Body] {
        let lock = || lock(&client).hold_until(until);
        let outside = ServiceBuilder::new()
            .layer(CatchPanicLayer::new())
            .layer(lock())
            .service(panics());
        let response = outside.oneshot(to("/k")).await.unwrap();
        assert_eq!(response.status(), 500);
        freed(&client, "/k").await;

        let inside = ServiceBuilder::new()
            .layer(lock())
            .layer(CatchPanicLayer::new())
            .service(panics());
        let response = inside.oneshot(to("/k")).await.unwrap();
        assert_eq!(response.status(), 500);
        drop(response);
        freed(&client, "/k").await;
    }
}

#[tokio::test]
async fn panic_of_a_completing_handler_is_caught_outside() {
    let client = Client::in_memory();
    let service = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(lock(&client).run_to_completion())
        .service(service_fn(async |_: Request<Full<Bytes>>| -> Answered {
            panic!("on purpose")
        }));
    assert_eq!(service.oneshot(to("/k")).await.unwrap().status(), 500);
    freed(&client, "/k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_between_buffers_re_enter_their_own_hold() {
    let client = Client::in_memory();
    let service = ServiceBuilder::new()
        .buffer(8)
        .concurrency_limit(4)
        .layer(lock(&client))
        .buffer(8)
        .concurrency_limit(2)
        .service(again(&client));
    let requests = (0..40).map(|n| {
        let service = service.clone();
        tokio::spawn(service.oneshot(to(["/a", "/b"][n % 2])))
    });
    for response in futures_util::future::join_all(requests).await {
        assert_eq!(text(response.unwrap().unwrap()).await, "2");
    }
    for key in ["/a", "/b"] {
        assert!(!client.lock(key).is_locked().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_request_takes_a_permit_of_the_limit_outside() {
    let client = Client::in_memory();
    let taken = client.lock("/k").acquire().await.unwrap();
    let service = ServiceBuilder::new()
        .concurrency_limit(1)
        .layer(lock(&client))
        .service(again(&client));
    let mut waiting = Box::pin(service.clone().oneshot(to("/k")));
    let mut other = Box::pin(service.oneshot(to("/free")));
    let both = async {
        tokio::select! {
            biased;
            _ = &mut waiting => "first",
            _ = &mut other => "other",
        }
    };
    assert!(tokio::time::timeout(SEC, both).await.is_err());
    taken.release().await.unwrap();
    assert_eq!(text(waiting.await.unwrap()).await, "2");
    assert_eq!(text(other.await.unwrap()).await, "2");
}

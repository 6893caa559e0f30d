//! The answers in place of the handler's response: status, headers, body, and no keys or holders in them.

#[cfg(feature = "axum")]
mod own_errors;
mod rejections;
mod retry_after;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use distlock::{Client, MemoryServer, Mode};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{Held, IntoLockKeys, KeyFn, LockLayer};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC, replicas};

async fn handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("done")))
}

async fn unreachable_handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    unreachable!("the handler must not run")
}

/// The answer to a request that does not reach the handler.
async fn refused(layer: LockLayer) -> Answer {
    let service = layer.layer(service_fn(unreachable_handler));
    Answer::of(service.oneshot(Request::new(())).await.unwrap()).await
}

fn keyed<F, M>(client: &Client, key: F) -> LockLayer
where
    F: KeyFn<M, ()>,
    F::Keys: IntoLockKeys,
{
    LockLayer::new(client.clone()).key(key)
}

#[tokio::test(start_paused = true)]
async fn waits_ten_seconds_by_default() {
    let (one, two) = replicas();
    let _guard = two.lock("k").acquire().await.unwrap();
    for (layer, waits) in [
        (keyed(&one, |_: &Parts| "k"), 10 * SEC),
        (keyed(&one, |_: &Parts| "k").wait(2 * SEC), 2 * SEC),
    ] {
        let since = tokio::time::Instant::now();
        refused(layer).await.is_problem("busy", 409, true);
        let waited = since.elapsed();
        assert!((waits..waits + SEC / 10).contains(&waited), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_503() {
    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let answer = refused(keyed(&client, |_: &Parts| "secret")).await;
    answer.is_problem("unavailable", 503, true);
    assert_eq!(answer.retry_after, Some(5));
}

/// The wait is too short to tell a slow answer from an outage, but nobody is known to hold the lock.
#[tokio::test(start_paused = true)]
async fn server_that_had_not_answered_when_the_wait_was_over_is_503() {
    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::Never);
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let answer = refused(keyed(&client, |_: &Parts| "secret").wait(SEC / 5)).await;
    answer.is_problem("unavailable", 503, true);
    assert_eq!(answer.retry_after, Some(5));
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_when_the_client_is_closed_or_come_later_are_503() {
    let (one, two) = replicas();
    let _guard = two.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(refused(keyed(&one, |_: &Parts| "k")));
    tokio::task::yield_now().await;
    one.close(SEC).await.unwrap();
    let late = refused(keyed(&one, |_: &Parts| "k")).await;
    for answer in [waiting.await.unwrap(), late] {
        answer.is_problem("unavailable", 503, true);
        assert_eq!(answer.retry_after, Some(5));
    }
}

#[tokio::test(start_paused = true)]
async fn response_is_returned_if_the_release_is_not_confirmed() {
    let faults = Faults::new();
    faults.always(Op::Release, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let service = keyed(&client, |_: &Parts| "k").layer(service_fn(handler));
    let answer = Answer::of(service.oneshot(Request::new(())).await.unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text.as_str()),
        (200, "done")
    );
    assert!(faults.hits(Op::Release) > 1);
}

#[tokio::test]
async fn invalid_keys_are_400() {
    let client = Client::in_memory();
    let long = "k".repeat(513);
    for layer in [
        keyed(&client, |_: &Parts| ""),
        keyed(&client, |_: &Parts| "order\r\nsecret"),
        keyed(&client, move |_: &Parts| long.clone()),
        keyed(&client, |_: &Parts| Vec::<String>::new()),
    ] {
        refused(layer).await.is_problem("key", 400, false);
    }
    let longest = keyed(&client, |_: &Parts| "k".repeat(512));
    let response = longest.layer(service_fn(handler)).oneshot(Request::new(()));
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn too_many_keys_and_one_invalid_key_among_valid_ones_are_400() {
    let client = Client::in_memory();
    let many = |count: usize| (0..count).map(|n| format!("many{n}")).collect::<Vec<_>>();
    refused(keyed(&client, move |_: &Parts| many(257)))
        .await
        .is_problem("key", 400, false);
    refused(keyed(&client, |_: &Parts| ["order:1", ""]))
        .await
        .is_problem("key", 400, false);
}

#[tokio::test]
async fn several_keys_are_held_together_and_freed_together() {
    let client = Client::in_memory();
    let layer = keyed(&client, |_: &Parts| ["stock:7", "order:42", "item:9"]);
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        assert_eq!(
            held.keys().collect::<Vec<_>>(),
            ["item:9", "order:42", "stock:7"]
        );
        assert_eq!(held.key(), "item:9");
        for key in held.keys() {
            assert_eq!(client.lock(key).hold_count().await.unwrap(), 1);
            // Inside the section, each key can be re-entered.
            assert!(client.lock(key).try_acquire().await.unwrap().is_some());
        }
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
    for key in ["item:9", "order:42", "stock:7"] {
        assert!(!client.lock(key).is_locked().await.unwrap());
    }
    let taken = client.lock("stock:7").acquire().await.unwrap();
    let layer = keyed(&client, |_: &Parts| ["order:42", "stock:7"]).wait(Duration::ZERO);
    refused(layer).await.is_problem("busy", 409, true);
    taken.release().await.unwrap();
}

#[tokio::test]
async fn duplicate_keys_are_acquired_once() {
    let client = Client::in_memory();
    let layer = keyed(&client, |_: &Parts| vec![String::from("k"); 3]);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        assert_eq!(client.lock("k").hold_count().await.unwrap(), 1);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn duplicate_keys_count_once_towards_the_number_of_keys() {
    let client = Client::in_memory();
    let repeated = |times| move |_: &Parts| vec![String::from("k"); times];
    // A fenced lock has a single key, and a request has 256 at most.
    let fenced = keyed(&client, repeated(2)).mode(Mode::Fenced);
    let many = keyed(&client, repeated(300));
    for layer in [fenced, many] {
        let service = layer.layer(service_fn(async |request: Request<()>| {
            let held = request.extensions().get::<Held>().unwrap();
            assert!(held.keys().eq(["k"]));
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        }));
        let response = service.oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[cfg(not(feature = "axum"))]
#[tokio::test]
#[allow(clippy::result_large_err, reason = "an answer is as large as it is")]
async fn error_of_a_key_function_is_the_answer_without_axum_too() {
    let layer = keyed(&Client::in_memory(), |_: &Parts| {
        let teapot = Response::builder()
            .status(418)
            .body(Full::<Bytes>::from("short"));
        Err::<String, _>(teapot.unwrap())
    });
    let answer = refused(layer).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text.as_str()),
        (418, "short")
    );

    let any_body = |_: &Parts| Err::<String, _>(Response::new(String::from("own")));
    let answer = refused(keyed(&Client::in_memory(), any_body)).await;
    assert_eq!(answer.text, "own");
}

//! When a refused request is told to come back.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::{Held, LockLayer};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC, replicas};

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|parts: &Parts| parts.uri.path().to_owned())
}

/// Responds after the number of milliseconds in the query.
async fn handler(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let millis = request.uri().query().and_then(|query| query.parse().ok());
    tokio::time::sleep(Duration::from_millis(millis.unwrap_or_default())).await;
    Ok(Response::new(Full::from("done")))
}

async fn send(layer: &LockLayer, uri: &str) -> Answer {
    let request = Request::post(uri).body(()).unwrap();
    let response = layer.layer(service_fn(handler)).oneshot(request).await;
    Answer::of(response.unwrap()).await
}

async fn retry_after(layer: &LockLayer, key: &str) -> u64 {
    let answer = send(layer, key).await;
    answer.is_problem("busy", 409, true);
    answer.retry_after.unwrap()
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_is_waited_for_within_ten_seconds() {
    let (one, two) = replicas();
    for (lease, after) in [
        (600 * SEC, 10),
        (31 * SEC, 10),
        (5 * SEC, 5),
        (4 * SEC + SEC / 2, 5),
        (SEC / 10, 1),
    ] {
        let guard = two.lock("/k").acquire().lease(lease).await.unwrap();
        let layer = layer(&one).wait(Duration::ZERO);
        assert_eq!(retry_after(&layer, "/k").await, after, "lease {lease:?}");
        guard.release().await.unwrap();
    }
}

/// The layer's own holds have the lease, and so, most likely, has that of another replica.
#[tokio::test(start_paused = true)]
async fn lease_of_the_layer_is_a_fixed_one_whatever_its_length() {
    let (one, two) = replicas();
    let _held = two.lock("/k").acquire().lease(25 * SEC).await.unwrap();
    let layer = layer(&one).wait(Duration::ZERO);
    assert_eq!(retry_after(&layer, "/k").await, 1);
    assert_eq!(retry_after(&layer.lease(25 * SEC), "/k").await, 10);
}

/// The rest of a lease that is renewed says nothing about the end of the hold.
#[tokio::test(start_paused = true)]
async fn renewed_lease_is_worth_a_second_before_the_layer_has_seen_a_hold() {
    let (one, two) = replicas();
    let _held = two.lock("/k").acquire().await.unwrap();
    let layer = layer(&one).wait(Duration::ZERO);
    for _ in 0..4 {
        assert_eq!(retry_after(&layer, "/k").await, 1);
        tokio::time::sleep(7 * SEC).await;
    }
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_is_worth_twice_the_median_of_the_last_holds_of_the_layer() {
    let (one, two) = replicas();
    let _held = two.lock("/k").acquire().await.unwrap();
    let layer = layer(&one).wait(Duration::ZERO);
    // Of other keys. One long hold among short ones changes nothing.
    for (millis, after) in [(60_000, 10), (50, 1), (50, 1), (1_600, 1), (1_600, 4)] {
        let done = send(&layer, &format!("/other?{millis}")).await;
        assert_eq!(done.text, "done");
        let told = retry_after(&layer, "/k").await;
        assert_eq!(told, after, "after a hold of {millis} ms");
    }
    // Only the last holds count.
    for _ in 0..15 {
        send(&layer, "/other?2500").await;
    }
    assert_eq!(retry_after(&layer, "/k").await, 5);
}

/// The handlers end at once, and their keys stay taken.
#[tokio::test(start_paused = true)]
async fn key_that_stays_taken_after_its_handler_is_worth_that_time() {
    let client = Client::in_memory();
    let layer = layer(&client).wait(Duration::ZERO).hold_at_least(20 * SEC);
    for key in ["/a", "/b"] {
        assert_eq!(send(&layer, key).await.text, "done");
        assert_eq!(retry_after(&layer, key).await, 10);
    }
    tokio::time::sleep(17 * SEC).await;
    assert_eq!(retry_after(&layer, "/b").await, 3);
}

/// What only `Retry-After` says is hidden from scripts in a browser.
#[tokio::test(start_paused = true)]
async fn body_of_the_answer_has_the_seconds_too() {
    let (one, two) = replicas();
    let _held = two.lock("/k").acquire().lease(4 * SEC).await.unwrap();
    let answer = send(&layer(&one).wait(Duration::ZERO), "/k").await;
    assert_eq!(answer.problem.unwrap()["retry_after"], 4);
    let keyless = LockLayer::new(&one).key(|_: &Parts| "");
    let answer = send(&keyless, "/k").await;
    assert!(answer.problem.unwrap().get("retry_after").is_none());
}

/// The first in line waits without limit. Only what it has heard of the holder can be told to the others.
#[tokio::test(start_paused = true)]
async fn requests_behind_others_come_back_when_the_lease_ends_but_not_all_together() {
    let (client, other) = replicas();
    let lease = other.lock("/k").acquire().lease(8 * SEC).await.unwrap();
    let first = tokio::spawn(client.lock("/k").acquire().into_future());
    let layer = layer(&client).wait(SEC);
    let behind = (0..40).map(|_| retry_after(&layer, "/k"));
    let mut after = futures_util::future::join_all(behind).await;
    after.sort_unstable();
    assert!(
        after.iter().all(|after| (7..=11).contains(after)),
        "{after:?}"
    );
    after.dedup();
    assert!(after.len() > 1, "{after:?}");

    // A hold of the same client is known without the server. It is renewed.
    lease.release().await.unwrap();
    let _held = first.await.unwrap().unwrap();
    let behind = (0..40).map(|_| retry_after(&layer, "/k"));
    let mut after = futures_util::future::join_all(behind).await;
    after.sort_unstable();
    after.dedup();
    assert_eq!(after, [1, 2]);
}

/// The layer does not see when it ends.
#[tokio::test(start_paused = true)]
async fn hold_that_its_handler_keeps_does_not_count_as_one_of_the_last() {
    let client = Client::in_memory();
    let layer = layer(&client).wait(Duration::ZERO);
    send(&layer, "/k?3000").await;
    let keeps = service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        let guard = held.keep().unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(60 * SEC).await;
            guard.release().await
        });
        handler(request).await
    });
    for key in ["/a", "/b", "/c"] {
        let response = layer
            .layer(keeps)
            .oneshot(Request::post(key).body(()).unwrap());
        assert_eq!(response.await.unwrap().status(), 200);
        assert_eq!(retry_after(&layer, key).await, 6);
    }
}

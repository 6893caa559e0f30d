//! The time that the layer adds to a route. The lock is uncontended and in memory, so the result is the cost of the layer
//! and of the lock's bookkeeping.
//!
//! Run it with `cargo bench -p distlock-bench --bench layer`. Rounds with and without the layer alternate, so that noise on
//! the machine affects both. The median of the differences is printed, and the number of allocations that the layer adds, without
//! those of the lock.

#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run must fail at once"
)]
#![allow(missing_docs, reason = "a bench has no public API")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use distlock::Client;
use distlock_bench::quartiles;
use distlock_tower::{HoldUntil, LockLayer};
use futures_util::FutureExt as _;
use http::Request;
use http::request::Parts;
use tokio::task::unconstrained;
use tower::Service;

const ROUNDS: usize = 401;
/// Few enough that most rounds end before the scheduler interrupts them.
const REQUESTS: u32 = 200;

async fn pay(Path(id): Path<u64>) -> String {
    id.to_string()
}

fn route() -> Router {
    Router::new().route("/orders/{id}/pay", post(pay))
}

/// Returns the seconds per request.
async fn time(app: &mut Router) -> f64 {
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
        // A `Router` is always ready, so `poll_ready` can be skipped.
        let response = Service::<Request<Body>>::call(app, request).await;
        assert_eq!(response.unwrap().status(), 200);
    }
    start.elapsed().as_secs_f64() / f64::from(REQUESTS)
}

/// Returns the allocations of one request. The lock is in memory and free, so no request waits.
async fn allocations(app: &mut Router) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
        let one = allocations_of(async {
            let response = Service::<Request<Body>>::call(app, request).await;
            // The response body has the hold where the lock is held until its end.
            let body = response.unwrap().into_body();
            axum::body::to_bytes(body, 100).await.unwrap();
        });
        // Background tasks and growing tables add to some rounds.
        least = least.min(one.await);
    }
    least
}

/// Runs the future, and returns what its polls allocate.
async fn allocations_of(future: impl Future) -> u64 {
    // Without the budget of a task, which all the rounds together would use up.
    let mut future = pin!(unconstrained(future));
    let mut total = 0;
    poll_fn(|cx| {
        let mut polled = Poll::Pending;
        let counted = allocation_counter::measure(|| polled = future.as_mut().poll(cx).map(drop));
        total += counted.count_total;
        polled
    })
    .await;
    total
}

/// Returns the allocations of one lock: acquired, entered and released.
fn allocations_of_lock(client: &Client) -> u64 {
    let one = || {
        let running = client.lock("order").acquire().run(async {});
        allocation_counter::measure(|| unconstrained(running).now_or_never().unwrap().unwrap())
            .count_total
    };
    (0..ROUNDS).map(|_| one()).min().unwrap()
}

/// Measures the lock without the layer: the part of the cost that no layer can avoid.
async fn without_layer(client: &Client) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..REQUESTS {
            let guard = client.lock("order").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        rounds.push(start.elapsed().as_secs_f64() / f64::from(REQUESTS));
    }
    let took = median(rounds.into_iter());
    println!(
        "{:<44} {took:>6.2} us, {} allocations",
        "acquire and release without the layer",
        allocations_of_lock(client)
    );
}

async fn compare(what: &str, layer: LockLayer, lock: u64) {
    let (mut bare, mut guarded) = (route(), route().route_layer(layer));
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        pairs.push((time(&mut bare).await, time(&mut guarded).await));
    }
    let route = median(pairs.iter().map(|(bare, _)| *bare));
    let adds = median(pairs.iter().map(|(bare, guarded)| guarded - bare));
    let (route_allocates, all) = (
        allocations(&mut bare).await,
        allocations(&mut guarded).await,
    );
    println!(
        "{what:<44} {adds:>6.2} us, in addition to {route:.2} us of the bare route; {all} allocations: {} by the layer, {lock} by \
         the lock, {route_allocates} by the bare route",
        all.saturating_sub(route_allocates + lock)
    );
}

fn median(seconds: impl Iterator<Item = f64>) -> f64 {
    let [_, median, _] = quartiles(seconds.map(|seconds| seconds * 1e6).collect());
    median
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = Client::in_memory();
    let layer = || LockLayer::new(&client);
    println!(
        "time that the layer adds to one request, median of {ROUNDS} rounds; goal for one key: at most 5 us"
    );
    without_layer(&client).await;
    let lock = allocations_of_lock(&client);
    compare("a constant key", layer().key(|_: &Parts| "order"), lock).await;
    let by_path = || layer().key(|Path(id): Path<u64>| format!("order:{id}"));
    compare("a key from an extractor", by_path(), lock).await;
    compare(
        "a key from a template",
        layer().key_template("order:<path.id>"),
        lock,
    )
    .await;
    compare(
        "held until the end of the body",
        by_path().hold_until(HoldUntil::Body),
        lock,
    )
    .await;
    let three = |Path(id): Path<u64>| {
        [
            format!("order:{id}"),
            format!("stock:{id}"),
            format!("item:{id}"),
        ]
    };
    compare("three keys as one lock", layer().key(three), lock).await;
    compare("readers and writers", by_path().read_write(), lock).await;
}

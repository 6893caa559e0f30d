//! How many allocations the layer adds to a request, beside those of the lock and of the bare route.
//!
//! A binary apart from the other tests, because it counts with an allocator of its own.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use distlock::Client;
use distlock_tower::LockLayer;
use futures_util::FutureExt as _;
use http::Request;
use http::request::Parts;
use tokio::task::unconstrained;
use tower::Service;

const ROUNDS: usize = 50;

/// The least of many rounds: background tasks and growing tables add to some of them.
fn least(round: impl FnMut() -> u64) -> u64 {
    let rounds = std::iter::repeat_with(round).take(ROUNDS);
    rounds.min().unwrap()
}

/// The lock is in memory and free, so no request waits.
fn of_request(app: &mut Router) -> u64 {
    least(|| {
        let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
        let counted = allocation_counter::measure(|| {
            // Without the budget of a task, which all the rounds together would use up.
            let responding = unconstrained(Service::<Request<Body>>::call(app, request));
            let response = responding.now_or_never().unwrap();
            assert_eq!(response.unwrap().status(), 200);
        });
        counted.count_total
    })
}

fn of_lock(client: &Client) -> u64 {
    least(|| {
        let acquire = client.lock("order:42").acquire();
        let counted = allocation_counter::measure(|| {
            unconstrained(acquire.run(async {}))
                .now_or_never()
                .unwrap()
                .unwrap();
        });
        counted.count_total
    })
}

#[tokio::test]
async fn layer_adds_few_allocations_to_those_of_the_lock() {
    let client = Client::in_memory();
    let route = || Router::new().route("/orders/{id}/pay", post(async || "paid"));
    let (bare, lock) = (of_request(&mut route()), of_lock(&client));
    let layer = || LockLayer::new(&client);
    let layers = [
        ("a constant key", layer().key(|_: &Parts| "order:42"), 17),
        (
            "a key from an extractor",
            layer().key(|Path(id): Path<u64>| format!("order:{id}")),
            18,
        ),
        (
            "no lock",
            layer().key(|_: &Parts| None::<String>).optional(),
            7,
        ),
    ];
    println!("bare route {bare}, lock {lock}");
    for (what, layer, most) in layers {
        let all = of_request(&mut route().route_layer(layer));
        let own = all - bare - if what == "no lock" { 0 } else { lock };
        println!("{what}: {all} in all, {own} by the layer");
        assert!(
            own <= most,
            "{what}: {own} allocations by the layer, expected at most {most}"
        );
    }
}

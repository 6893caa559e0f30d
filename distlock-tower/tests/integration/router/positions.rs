//! The positions of the layer in a router: its state, and what it locks there.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::routing::post;
use distlock::Client;
use distlock_tower::LockLayer;
use tower::ServiceBuilder;

use super::{App, held_key, orders, post_to, send};
use crate::support::SEC;

#[tokio::test]
async fn key_function_gets_the_state_of_with_state() {
    let app = App {
        region: "eu",
        locks: Client::in_memory(),
    };
    let layer = LockLayer::new(app.locks.clone())
        .with_state(app.clone())
        .key(|State(app): State<App>, Path(id): Path<u64>| format!("{}:{id}", app.region));
    let router: Router<App> = Router::new()
        .route("/orders/{id}", post(held_key))
        .route_layer(layer);
    let answer = send(router.with_state(app), post_to("/orders/7")).await;
    assert_eq!(answer.text, "eu:7");
}

#[tokio::test]
async fn layer_works_at_every_position_in_a_router() {
    let client = Client::in_memory();
    let layer = || orders(&client);
    let route = || Router::new().route("/orders/{id}", post(held_key));
    let stateless: axum::routing::MethodRouter = post(held_key);
    let apps: [Router; 7] = [
        route().route_layer(layer()),
        route().layer(layer()),
        Router::new().route("/orders/{id}", post(held_key).layer(layer())),
        Router::new().route("/orders/{id}", post(held_key).route_layer(layer())),
        Router::new().nest(
            "/orders",
            Router::new()
                .route("/{id}", post(held_key))
                .route_layer(layer()),
        ),
        route().layer(ServiceBuilder::new().concurrency_limit(2).layer(layer())),
        Router::new().route_service(
            "/orders/{id}",
            ServiceBuilder::new().layer(layer()).service(stateless),
        ),
    ];
    for (n, app) in apps.into_iter().enumerate() {
        assert_eq!(
            send(app, post_to("/orders/7")).await.text,
            "order:7",
            "app {n}"
        );
        assert!(!client.lock("order:7").is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn route_layer_locks_nothing_for_unknown_paths_and_methods() {
    let client = Client::in_memory();
    let _guard = client.lock("order:7").acquire().await.unwrap();
    let app: Router = Router::new().route(
        "/orders/{id}",
        post(held_key).route_layer(orders(&client).wait(SEC / 100)),
    );
    assert_eq!(send(app.clone(), post_to("/other")).await.status, 404);
    let get = Request::get("/orders/7").body(Body::empty()).unwrap();
    assert_eq!(send(app.clone(), get).await.status, 405);
    send(app, post_to("/orders/7"))
        .await
        .is_problem("busy", 409, true);
}

/// Why nothing can tell that a route is not locked: its requests never come to the layer.
#[tokio::test]
async fn route_or_method_that_is_added_after_the_layer_is_not_seen_by_it() {
    let client = Client::in_memory();
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = std::sync::Arc::clone(&seen);
    let layer = LockLayer::new(&client).key(move |_: &http::request::Parts| {
        counting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        "key"
    });
    let app: Router = Router::new()
        .route("/before", post(held_key))
        .route("/method", post(held_key).layer(layer.clone()).put(held_key))
        .layer(layer)
        .route("/after", post(held_key));
    let put = Request::put("/method").body(Body::empty()).unwrap();
    for (request, under) in [
        (post_to("/before"), "key"),
        (post_to("/method"), "key"),
        (put, "key"),
        (post_to("/after"), "-"),
    ] {
        assert_eq!(send(app.clone(), request).await.text, under);
    }
    // The method that was added after its own layer came to the outer one alone.
    assert_eq!(seen.load(std::sync::atomic::Ordering::SeqCst), 4);
}

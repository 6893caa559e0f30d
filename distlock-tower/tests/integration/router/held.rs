//! The hold in an axum handler: re-entry, and the `Held` extractor.

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::routing::post;
use distlock::Client;
use distlock_tower::{Held, LockLayer};

use super::{App, held_key, orders, post_to, send};
use crate::support::SEC;

#[tokio::test]
async fn handler_re_enters_and_a_spawned_task_does_not() {
    let app = App {
        region: "eu",
        locks: Client::in_memory(),
    };
    async fn pay(State(app): State<App>, held: Held) -> impl IntoResponse {
        let lock = app.locks.lock(held.key());
        let again = lock.acquire().wait(SEC / 10).await.unwrap();
        let count = lock.hold_count().await.unwrap();
        let spawned = tokio::spawn(async move { lock.try_acquire().await.unwrap().is_some() });
        let spawned = spawned.await.unwrap();
        again.release().await.unwrap();
        format!("{count} {spawned}")
    }
    let layer = orders(&app.locks);
    let router = Router::new()
        .route("/orders/{id}", post(pay))
        .route_layer(layer);
    let answer = send(router.with_state(app.clone()), post_to("/orders/7")).await;
    assert_eq!(answer.text, "2 false");
    assert!(!app.locks.lock("order:7").is_locked().await.unwrap());
}

#[tokio::test]
async fn extractor_says_why_there_is_no_hold() {
    async fn needs(held: Held) -> String {
        held.key().to_owned()
    }
    let bare: Router = Router::new().route("/", post(needs));
    let answer = send(bare.clone(), post_to("/")).await;
    answer.is_problem("config", 500, false);
    assert!(
        answer
            .text
            .contains("LockLayer is not installed on this route"),
        "{answer:?}"
    );

    let unkeyed = || LockLayer::new(Client::in_memory());
    for layer in [
        unkeyed().key(|_: Method| None::<String>).optional(),
        unkeyed().key(|_: Method| "k").methods([Method::PUT]),
        unkeyed().key_header("x-absent").optional(),
    ] {
        let answer = send(bare.clone().layer(layer), post_to("/")).await;
        answer.is_problem("config", 500, false);
        // The extractor cannot know which of these cases applies, so the text covers them all.
        let either = "its conditions exclude it, or it has no key";
        assert!(answer.text.contains(either), "{answer:?}");
    }
}

#[tokio::test]
async fn hold_of_the_innermost_layer_is_extracted() {
    let client = Client::in_memory();
    let app = Router::new()
        .route("/orders/{id}", post(held_key))
        .route_layer(LockLayer::new(client.clone()).key(|_: Method| "inner"))
        .route_layer(orders(&client));
    assert_eq!(send(app, post_to("/orders/7")).await.text, "inner");
}

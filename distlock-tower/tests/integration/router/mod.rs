//! The layer in axum routers: keys, positions in a router, the hold in the handler, real connections.

mod client_layer;
mod held;
mod keys;
mod positions;
mod real_connections;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Request;
use axum::routing::post;
use distlock::Client;
use distlock_tower::{Held, IntoLockKeys, KeyFn, LockLayer};
use tower::ServiceExt;

use crate::support::Answer;

async fn held_key(held: Option<Held>) -> String {
    held.map_or("-".into(), |held| held.key().to_owned())
}

fn post_to(uri: &str) -> Request<Body> {
    Request::post(uri).body(Body::empty()).unwrap()
}

async fn send(app: Router, request: Request<Body>) -> Answer {
    Answer::of(app.oneshot(request).await.unwrap()).await
}

/// The answer of a handler behind this key function: the key that it runs under.
async fn under<F, M>(key: F, uri: &str) -> Answer
where
    F: KeyFn<M, ()>,
    F::Keys: IntoLockKeys,
{
    let layer = LockLayer::new(Client::in_memory()).key(key);
    let app = Router::new()
        .route("/orders/{id}", post(held_key))
        .route_layer(layer);
    send(app, post_to(uri)).await
}

fn orders(client: &Client) -> LockLayer {
    LockLayer::new(client.clone()).key(|Path(id): Path<u64>| format!("order:{id}"))
}

#[derive(Clone)]
struct App {
    region: &'static str,
    locks: Client,
}

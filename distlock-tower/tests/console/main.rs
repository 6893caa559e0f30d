//! The console over HTTP, without a browser and on a server in memory.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod api;
mod events;
mod history;
mod own;
mod page;
mod release;
mod release_log;
mod senders;

use std::sync::Once;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use distlock::{Client, MemoryServer};
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

/// Two clients of one server, of which the first one has the console.
fn clients() -> (Client, Client) {
    let server = MemoryServer::new();
    let client = |name| Client::builder().name(name).in_memory(&server).unwrap();
    (client("watcher"), client("worker"))
}

/// Gives the whole process a subscriber that wants every event. Without one, the subscriber of a test misses an event that
/// another thread registers, and takes for unwanted, while the test sets its own.
fn want_every_event() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
    });
}

/// The console of a client, mounted at `/locks`.
fn app(client: &Client) -> Router {
    let console = distlock_tower::console(client.clone());
    Router::new().nest_service("/locks", Router::from(console))
}

async fn get(app: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn json(app: &Router, path: &str) -> Value {
    let response = get(app, path).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    serde_json::from_str(&text(response).await).unwrap()
}

/// The time after which the console looks again.
async fn until_next_look() {
    tokio::time::advance(Duration::from_secs(2)).await;
}

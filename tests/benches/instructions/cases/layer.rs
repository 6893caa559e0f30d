//! A request to a route under the layer. The lock is in memory and free.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use distlock::Client;
use distlock_tower::LockLayer;
use http::Request;
use http::request::Parts as Head;
use tower::Service;

use crate::parts::{Parts, Side};

const ROUNDS: usize = 25;
const REQUESTS: [usize; 2] = [5, 25];

pub(super) async fn run(parts: &mut Parts) {
    let layer = LockLayer::new(Client::in_memory()).key(|_: &Head| "order:42");
    let (mut bare, mut guarded) = (route(), route().route_layer(layer));
    send(&mut guarded, 1).await;
    send(&mut bare, 1).await;
    for _ in 0..ROUNDS {
        for requests in REQUESTS {
            let ours = send(&mut guarded, requests);
            parts.count(Side::Library, requests, ours).await;
            let theirs = send(&mut bare, requests);
            parts.count(Side::Bare, requests, theirs).await;
        }
    }
}

fn route() -> Router {
    let pay = async |Path(id): Path<u64>| id.to_string();
    Router::new().route("/orders/{id}/pay", post(pay))
}

async fn send(app: &mut Router, requests: usize) {
    for _ in 0..requests {
        let request = Request::post("/orders/42/pay").body(Body::empty()).unwrap();
        // A `Router` is always ready, so `poll_ready` can be skipped.
        let response = Service::<Request<Body>>::call(app, request).await;
        assert_eq!(response.unwrap().status(), 200);
    }
}

//! The layer below a body limit: that of `tower-http`, whose bodies are of a private type, and that of `http-body-util`.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use distlock::Client;
use distlock_tower::LockLayer;
use futures_util::stream::{self, StreamExt as _};
use http::Request;
use http::request::Parts;
use http_body_util::Limited;
use tokio::time::timeout;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::map_request_body::MapRequestBodyLayer;

use crate::support::{Answer, SEC};

const KEY: &str = "order:1";

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|_: &Parts| KEY)
}

fn limit() -> RequestBodyLimitLayer {
    RequestBodyLimitLayer::new(3)
}

fn upload() -> Router {
    Router::new().route(
        "/",
        post(async |body: Bytes| format!("{} bytes", body.len())),
    )
}

/// The two stacks that the docs name.
fn stacks(client: &Client) -> [Router; 2] {
    let in_one_builder = ServiceBuilder::new()
        .layer(limit())
        .layer(MapRequestBodyLayer::new(Body::new))
        .layer(layer(client));
    [
        upload().route_layer(layer(client)).route_layer(limit()),
        upload().route_layer(in_one_builder),
    ]
}

/// Without a `content-length`, which the limit would look at first.
fn pieces<const N: usize>(texts: [&'static str; N]) -> Body {
    let pieces = texts.map(|text| Ok::<_, Infallible>(Bytes::from(text)));
    Body::from_stream(stream::iter(pieces))
}

fn streamed(text: &'static str) -> Body {
    pieces([text])
}

async fn send(app: Router, body: Body) -> Answer {
    let request = Request::post("/").body(body).unwrap();
    let response = timeout(100 * SEC, app.oneshot(request)).await;
    Answer::of(response.expect("no answer").unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_408_below_a_body_limit_that_gives_the_layer_an_axum_body() {
    let client = Client::in_memory();
    for app in stacks(&client) {
        let piece = stream::iter([Ok::<_, Infallible>(Bytes::from("x"))]);
        let slow = Body::from_stream(piece.chain(stream::pending()));
        let answer = send(app, slow).await;
        answer.is_problem("body-timeout", 408, false);
        assert!(!client.lock(KEY).is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn body_limit_outside_the_layer_answers_as_without_the_layer() {
    let client = Client::in_memory();
    for app in stacks(&client) {
        assert_eq!(send(app.clone(), streamed("abc")).await.text, "3 bytes");
        assert_eq!(send(app, streamed("abcd")).await.status, 413);
    }
}

/// axum's extractors look for the error of the limit only so deep in the errors around it.
#[tokio::test]
async fn limited_body_in_the_same_service_builder_is_413_as_without_the_layer() {
    let client = Client::in_memory();
    let limited = |request: Request<Body>| request.map(|body| Limited::new(body, 3));
    let bare = ServiceBuilder::new().map_request(limited);
    let apps = [
        upload().route_layer(bare.clone()),
        upload().route_layer(bare.layer(layer(&client))),
    ];
    let bodies: [(fn() -> Body, _); 6] = [
        (|| Body::from("abc"), 200),
        (|| streamed("abc"), 200),
        (|| pieces(["a", "bc"]), 200),
        (|| Body::from("abcd"), 413),
        (|| streamed("a long text"), 413),
        (|| pieces(["abc", "d"]), 413),
    ];
    for app in apps {
        for (body, status) in bodies {
            let answer = send(app.clone(), body()).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
    }
}

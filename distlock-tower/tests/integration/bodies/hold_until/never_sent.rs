//! Bodies that a server does not send: the response alone is the end, so the hold ends before it.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use super::{layer, locked};
use crate::support::{SEC, freed};

#[tokio::test(start_paused = true)]
async fn head_request_has_its_response_after_the_release_with_the_length_that_get_has() {
    let faults = Faults::new();
    let client = Client::builder().faults(&faults);
    let client = client.in_memory(&MemoryServer::new()).unwrap();
    let app: Router = Router::new()
        .route("/", get(async || "done"))
        .layer(layer(&client));
    faults.next(Op::Release, Fault::DelayReply(SEC));
    let since = tokio::time::Instant::now();
    let request = Request::head("/").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert!(since.elapsed() >= SEC, "{:?}", since.elapsed());
    assert_eq!(faults.hits(Op::Release), 1);
    assert!(!locked(&client).await);
    assert_eq!(response.headers()[CONTENT_LENGTH], "4");
}

#[tokio::test]
async fn response_whose_body_no_server_sends_comes_after_the_release() {
    let client = Client::in_memory();
    for (method, status, is_sent) in [
        (Method::GET, StatusCode::NO_CONTENT, false),
        (Method::GET, StatusCode::NOT_MODIFIED, false),
        (Method::GET, StatusCode::SWITCHING_PROTOCOLS, false),
        (Method::CONNECT, StatusCode::OK, false),
        (Method::HEAD, StatusCode::NOT_FOUND, false),
        (Method::CONNECT, StatusCode::BAD_REQUEST, true),
        (Method::POST, StatusCode::OK, true),
    ] {
        let handler = service_fn(async |_: Request<()>| {
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(Full::<Bytes>::from("done")).unwrap())
        });
        let request = Request::builder().method(&method).body(()).unwrap();
        let response = layer(&client).layer(handler).oneshot(request).await;
        assert_eq!(locked(&client).await, is_sent, "{method} {status}");
        drop(response);
        freed(&client, "k").await;
    }
}

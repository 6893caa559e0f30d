//! The response body without a hold: it forwards the inner body and does not keep the lock.

use std::convert::Infallible;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::{HoldBody, LockLayer};
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};

/// The response body of a service with this body, behind the layer.
async fn guarded<B: Body<Data = Bytes>>(client: &Client, body: B) -> HoldBody<B> {
    let body = std::cell::Cell::new(Some(body));
    let handler =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(body.take().unwrap())));
    let layer = LockLayer::new(client.clone()).key(|_: &Parts| "k");
    let response = layer.layer(handler).oneshot(Request::new(())).await;
    response.unwrap().into_body()
}

#[tokio::test]
async fn size_and_end_are_those_of_the_inner_body() {
    let client = Client::in_memory();
    let full = guarded(&client, Full::<Bytes>::from("done")).await;
    assert_eq!(
        (full.size_hint().exact(), full.is_end_stream()),
        (Some(4), false)
    );
    let empty = guarded(&client, Empty::<Bytes>::new()).await;
    assert_eq!(
        (empty.size_hint().exact(), empty.is_end_stream()),
        (Some(0), true)
    );
}

#[tokio::test]
async fn frames_trailers_and_errors_are_forwarded_after_the_release() {
    let client = Client::in_memory();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let frames = [
        Ok(Frame::data(Bytes::from("a"))),
        Ok(Frame::trailers(trailers)),
        Err("broken"),
    ];
    let mut body = guarded(&client, StreamBody::new(stream::iter(frames))).await;
    assert!(!client.lock("k").is_locked().await.unwrap());
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "a"
    );
    let trailers = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(trailers["x-sum"], "1");
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "broken");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn body_of_an_answer_has_a_known_size() {
    let client = Client::in_memory();
    let layer = LockLayer::new(client).key(|_: &Parts| "");
    let handler = service_fn(
        async |_: Request<()>| -> Result<Response<Empty<Bytes>>, Infallible> { unreachable!() },
    );
    let response = layer
        .layer(handler)
        .oneshot(Request::new(()))
        .await
        .unwrap();
    let body = response.into_body();
    let size = body.size_hint().exact().unwrap();
    assert_eq!(body.collect().await.unwrap().to_bytes().len() as u64, size);
}

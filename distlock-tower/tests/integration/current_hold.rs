//! `distlock::current` and `is_held` in code that runs under the layer.

use std::convert::Infallible;

use bytes::Bytes;
use distlock::{Client, Mode, current, is_held};
use distlock_tower::{BoxError, Held, HoldUntil, LockLayer};
use futures_util::stream;
use http::request::Parts;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::Answer;

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|_: &Parts| "k")
}

fn response_of(value: bool) -> Response<Full<Bytes>> {
    Response::new(Full::from(value.to_string()))
}

#[tokio::test]
async fn handler_finds_its_hold_by_the_key_and_a_spawned_task_does_not() {
    let client = Client::in_memory();
    let handler = service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        let found = current(held.key()).unwrap();
        assert!(found.fencing_token().is_some() && found.fencing_token() == held.fencing_token());
        let spawned = tokio::spawn(async { is_held("k") }).await.unwrap();
        let inherited = tokio::spawn(distlock::inherit(async { is_held("k") }));
        let inherited = inherited.await.unwrap();
        Ok::<_, Infallible>(response_of(found.is_held() && !spawned && inherited))
    });
    let response = layer(&client)
        .mode(Mode::Fenced)
        .layer(handler)
        .oneshot(Request::new(()));
    assert_eq!(Answer::of(response.await.unwrap()).await.text, "true");
    assert!(!is_held("k"));
}

#[tokio::test]
async fn handler_finds_each_of_several_keys() {
    let client = Client::in_memory();
    let several = LockLayer::new(&client).key(|_: &Parts| ["a", "b"]);
    let handler = service_fn(async |_: Request<()>| {
        let all = is_held("a") && is_held("b") && !is_held("c");
        Ok::<_, Infallible>(response_of(all))
    });
    let response = several.layer(handler).oneshot(Request::new(())).await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "true");
}

#[tokio::test]
async fn body_finds_the_hold_only_if_it_continues_with_the_body() {
    let client = Client::in_memory();
    for (until, expected) in [(HoldUntil::Body, "true"), (HoldUntil::Response, "false")] {
        let handler = service_fn(async |_: Request<()>| {
            let once = stream::once(async {
                Ok::<_, BoxError>(Frame::data(Bytes::from(is_held("k").to_string())))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(once))))
        });
        let service = layer(&client).hold_until(until).layer(handler);
        let response = service.oneshot(Request::new(())).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), expected, "{until:?}");
    }
}

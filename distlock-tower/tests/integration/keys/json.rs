//! Keys from a body that is parsed: JSON and forms.

use std::convert::Infallible;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::key::{KeyedBody, WholeBody};
use distlock_tower::{Held, LockLayer};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::Answer;

#[derive(serde::Deserialize)]
struct Pick {
    article: u64,
    shelf: Option<String>,
}

type Body = Full<Bytes>;

/// Responds with the key that it runs under and the request's body.
async fn echo(request: Request<KeyedBody<Body>>) -> Result<Response<Body>, Infallible> {
    let held = request.extensions().get::<Held>().cloned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let key = held.as_ref().map_or("-", Held::key);
    Ok(Response::new(Full::from(
        [key.as_bytes(), b" ", &body].concat(),
    )))
}

fn layer() -> LockLayer<WholeBody> {
    let client = Client::in_memory();
    LockLayer::new(client).key_json(64, |pick: Pick| format!("article:{}", pick.article))
}

/// By the shelf, which a request need not name.
fn by_shelf() -> LockLayer<WholeBody> {
    let client = Client::in_memory();
    LockLayer::new(client).key_json(64, |pick: Pick| pick.shelf)
}

type Header = (&'static str, &'static str);

async fn send(layer: LockLayer<WholeBody>, headers: &[Header], body: &str) -> Answer {
    let request = headers.iter().fold(
        Request::post("/"),
        |request: http::request::Builder, (name, value)| request.header(*name, *value),
    );
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let response = layer.layer(service_fn(echo)).oneshot(request).await;
    Answer::of(response.unwrap()).await
}

const JSON: Header = ("content-type", "application/json");

#[tokio::test]
async fn key_comes_from_the_parsed_body_and_the_handler_gets_the_body_again() {
    for content_type in [
        "application/json",
        "Application/JSON; charset=UTF-8",
        "application/vnd.shop+json;charset=\"utf-8\"",
    ] {
        let body = r#"{"article":7}"#;
        let answer = send(layer(), &[("content-type", content_type)], body).await;
        assert_eq!(answer.text, r#"article:7 {"article":7}"#, "{content_type}");
    }
}

/// Neither runs the handler, whether the layer is optional or not: a client must not choose to run without the lock.
#[tokio::test]
async fn body_that_cannot_be_read_never_runs_without_the_lock() {
    let pick = r#"{"article":7,"shelf":"a"}"#;
    let cases: [(&[Header], &str, u16); 12] = [
        (&[JSON, ("content-encoding", "gzip")], pick, 415),
        (&[JSON, ("content-encoding", "identity, br")], pick, 415),
        (&[JSON, ("content-encoding", "aes128gcm")], "\x01", 415),
        (&[], pick, 415),
        (&[("content-type", "text/plain")], pick, 415),
        (&[("content-type", "text/plain")], "", 415),
        (
            &[("content-type", "application/json; charset=utf-16")],
            pick,
            415,
        ),
        (&[JSON], "", 400),
        (&[JSON], "{", 400),
        (&[JSON], r#"{"article":"seven"}"#, 400),
        (&[JSON], "null", 400),
        (&[JSON], &pick.repeat(3), 413),
    ];
    for (headers, body, status) in cases {
        for layer in [layer(), layer().optional(), by_shelf().optional()] {
            let answer = send(layer, headers, body).await;
            answer.is_problem("key", status, false);
        }
    }
}

#[tokio::test]
async fn body_of_the_encoding_identity_is_read() {
    let headers = [JSON, ("content-encoding", "Identity")];
    let answer = send(layer(), &headers, r#"{"article":7}"#).await;
    assert_eq!(answer.text, r#"article:7 {"article":7}"#);
}

#[tokio::test]
async fn request_without_a_key_is_400_or_unlocked_if_the_layer_is_optional() {
    for (headers, body) in [(&[JSON][..], r#"{"article":7}"#), (&[], "")] {
        send(by_shelf(), headers, body)
            .await
            .is_problem("key", 400, false);
        let answer = send(by_shelf().optional(), headers, body).await;
        assert_eq!(answer.text, format!("- {body}"));
    }
}

/// The bytes of a compressed body are no key, and no reason to run without one.
#[tokio::test]
async fn raw_key_function_does_not_see_a_compressed_body() {
    let read = || {
        let client = Client::in_memory();
        let id = |body: &Bytes| serde_json::from_slice::<u64>(body).ok();
        LockLayer::new(client)
            .key_from_body(64, move |_, body| id(body).map(|id| format!("order:{id}")))
            .optional()
    };
    let answer = send(read(), &[("content-encoding", "gzip")], "\x1f").await;
    answer.is_problem("key", 415, false);
    assert_eq!(send(read(), &[], "7").await.text, "order:7 7");
}

#[cfg(feature = "form")]
#[tokio::test]
async fn key_comes_from_a_form() {
    let layer = || {
        let client = Client::in_memory();
        LockLayer::new(client).key_form(64, |pick: Pick| format!("article:{}", pick.article))
    };
    let form = ("content-type", "application/x-www-form-urlencoded");
    let answer = send(layer(), &[form], "shelf=a%20b&article=7").await;
    assert_eq!(answer.text, "article:7 shelf=a%20b&article=7");
    send(layer(), &[form], "article=x")
        .await
        .is_problem("key", 400, false);
    send(layer(), &[JSON], "article=7")
        .await
        .is_problem("key", 415, false);
}

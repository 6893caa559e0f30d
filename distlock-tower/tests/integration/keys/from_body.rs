//! Keys from the body of a request: how the body is read, and what the handler gets.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::key::{KeyedBody, WholeBody};
use distlock_tower::{BoxError, Held, HoldUntil, LockLayer};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC, freed, http_client};

/// A body like a server's: of any kind.
struct AnyBody(UnsyncBoxBody<Bytes, BoxError>);

impl From<Bytes> for AnyBody {
    fn from(bytes: Bytes) -> Self {
        Self(Full::new(bytes).map_err(Into::into).boxed_unsync())
    }
}

impl http_body::Body for AnyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

fn streamed(frames: BoxStream<'static, Result<Frame<Bytes>, BoxError>>) -> AnyBody {
    AnyBody(StreamBody::new(frames).boxed_unsync())
}

fn layer(client: &Client, limit: usize) -> LockLayer<WholeBody> {
    LockLayer::new(client).key_from_body(limit, |parts: &Parts, body: &Bytes| {
        let text = String::from_utf8(body.to_vec()).unwrap();
        format!("{}:{text}", parts.method)
    })
}

/// Responds with the key that it runs under and the request's body.
async fn echo<B>(request: Request<KeyedBody<B>>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let held = request.extensions().get::<Held>().cloned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let key = held.as_ref().map_or("-", Held::key);
    let text = [key.as_bytes(), b" ", &body].concat();
    Ok(Response::new(Full::from(text)))
}

async fn send(layer: LockLayer<WholeBody>, body: AnyBody) -> Answer {
    let request = Request::post("/").body(body).unwrap();
    let response = layer.layer(service_fn(echo)).oneshot(request).await;
    Answer::of(response.unwrap()).await
}

#[tokio::test]
async fn handler_gets_the_body_that_the_key_was_read_from() {
    let client = Client::in_memory();
    let frames = ["ab", "", "c"].map(|text| Ok(Frame::data(Bytes::from(text))));
    let bodies = [
        AnyBody::from(Bytes::from("abc")),
        streamed(stream::iter(frames).boxed()),
    ];
    for body in bodies {
        let answer = send(layer(&client, 3), body).await;
        assert_eq!(answer.text, "POST:abc abc");
        assert!(!client.lock("POST:abc").is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn body_over_the_limit_is_413_and_not_read_further() {
    let client = Client::in_memory();
    let sized = AnyBody::from(Bytes::from("abcd"));
    let read = Arc::new(AtomicUsize::new(0));
    let reading = Arc::clone(&read);
    let endless = stream::repeat_with(move || {
        reading.fetch_add(1, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from("ab")))
    });
    for body in [sized, streamed(endless.boxed())] {
        let answer = send(layer(&client, 3).drain_limit(0), body).await;
        answer.is_problem("key", 413, false);
    }
    assert!(read.load(Ordering::SeqCst) <= 2);
}

/// An error that wraps another one, as axum's error wraps that of a limit outside.
#[derive(Debug)]
struct Wrapped(BoxError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test]
async fn body_over_a_limit_outside_is_413_even_if_its_error_is_wrapped() {
    let client = Client::in_memory();
    let pieces = stream::iter(["ab", "cd"].map(|text| Ok::<_, BoxError>(Frame::data(text.into()))));
    let limited = Limited::new(StreamBody::new(pieces), 3);
    let wrap = |error| -> BoxError { Wrapped(Wrapped(error).into()).into() };
    let body = AnyBody(limited.map_err(wrap).boxed_unsync());
    let answer = send(layer(&client, 9), body).await;
    answer.is_problem("key", 413, false);
}

/// A body with a size hint that must not be read.
struct Announced(u64);

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        unreachable!("read")
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn body_with_a_size_hint_over_the_limit_is_not_read() {
    let client = Client::in_memory();
    let body = AnyBody(Announced(4).boxed_unsync());
    let answer = send(layer(&client, 3).drain_limit(3), body).await;
    answer.is_problem("key", 413, false);
}

#[tokio::test]
async fn body_that_fails_to_be_read_is_400() {
    let client = Client::in_memory();
    let frames: [Result<_, BoxError>; 2] =
        [Ok(Frame::data(Bytes::from("a"))), Err("broken".into())];
    let answer = send(layer(&client, 9), streamed(stream::iter(frames).boxed())).await;
    answer.is_problem("key", 400, false);
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_read_before_the_lock_is_taken() {
    let client = Client::in_memory();
    let slow = stream::iter(["a", "b"]).then(|text| async move {
        tokio::time::sleep(SEC).await;
        Ok(Frame::data(Bytes::from(text)))
    });
    let sending = send(layer(&client, 9), streamed(slow.boxed()));
    let meanwhile = async {
        tokio::time::sleep(SEC * 3 / 2).await;
        client.lock("POST:ab").is_locked().await.unwrap()
    };
    let (answer, locked) = tokio::join!(sending, meanwhile);
    assert_eq!(answer.text, "POST:ab ab");
    assert!(!locked);
}

#[tokio::test]
async fn body_of_an_unlocked_request_is_not_read_by_the_layer() {
    let client = Client::in_memory();
    let layer = layer(&client, 0).methods([Method::PUT]);
    let answer = send(layer, AnyBody::from(Bytes::from("longer than nothing"))).await;
    assert_eq!(answer.text, "- longer than nothing");
}

#[tokio::test]
async fn busy_request_is_refused_and_an_empty_body_gives_a_key() {
    let client = Client::in_memory();
    let layer = layer(&client, 9)
        .wait(Duration::ZERO)
        .hold_until(HoldUntil::Body);
    let taken = client.lock("POST:").acquire().await.unwrap();
    let empty = || AnyBody::from(Bytes::new());
    send(layer.clone(), empty())
        .await
        .is_problem("busy", 409, true);
    taken.release().await.unwrap();
    assert_eq!(send(layer, empty()).await.text, "POST: ");
    freed(&client, "POST:").await;
}

/// What a body limit outside in the same `ServiceBuilder` makes of requests.
#[cfg(feature = "axum")]
#[tokio::test]
async fn layer_works_below_a_body_limit_in_the_same_service_builder() {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;

    let client = Client::in_memory();
    let handler = async |held: Held, body: String| format!("{} {body}", held.key());
    let stack = tower::ServiceBuilder::new()
        .map_request(|request: Request<Body>| request.map(|body| Limited::new(body, 3)))
        .layer(layer(&client, 9));
    let completing = tower::ServiceBuilder::new()
        .map_request(|request: Request<Body>| request.map(|body| Limited::new(body, 3)))
        .layer(layer(&client, 9).run_to_completion());
    let app: Router = Router::new()
        .route("/plain", post(handler).route_layer(stack))
        .route("/completing", post(handler).route_layer(completing));
    for path in ["/plain", "/completing"] {
        let request = |text: &'static str| Request::post(path).body(Body::from(text)).unwrap();
        let answer = Answer::of(app.clone().oneshot(request("abc")).await.unwrap()).await;
        assert_eq!(answer.text, "POST:abc abc");
        let answer = Answer::of(app.clone().oneshot(request("abcd")).await.unwrap()).await;
        answer.is_problem("key", 413, false);
    }
}

/// A body that only hyper can make.
#[cfg(feature = "axum")]
#[tokio::test]
async fn layer_works_over_the_body_of_a_server_connection() {
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;

    let client = Client::in_memory();
    let service = layer(&client, 9).layer(service_fn(echo::<Incoming>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (connection, _) = listener.accept().await.unwrap();
        let answer = hyper::service::service_fn(move |request| service.clone().oneshot(request));
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(connection), answer)
            .await
    });
    let request = http_client().post(format!("http://{address}"));
    let response = request.body("abc").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "POST:abc abc");
}

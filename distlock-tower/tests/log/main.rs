//! The log contains the keys that answers omit.
//!
//! A binary apart from the other tests: a subscriber that is set for one thread misses events whose call sites another
//! thread reached first, because tracing caches that nobody listens there.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod panics;

use std::convert::Infallible;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use distlock::{Client, Mode};
use distlock_tower::LockLayer;
use http::request::Parts;
use http::{Request, Response, Version};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

async fn refused(layer: LockLayer) {
    let handler = service_fn(
        async |_: Request<()>| -> Result<Response<String>, Infallible> { unreachable!() },
    );
    let response = layer
        .layer(handler)
        .oneshot(Request::new(()))
        .await
        .unwrap();
    assert_ne!(response.status(), 200);
}

/// A writer that collects the log as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn body_of_a_type_that_cannot_be_timed_is_logged_once_and_only_if_nothing_else_bounds_the_hold()
 {
    let log = Log::default();
    let _listening = log.listen();
    let client = Client::in_memory();
    let layer = || LockLayer::new(client.clone()).key(|_: &Parts| "k");
    let handler = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let send = async |layer: &LockLayer, (name, value): (&str, &str)| {
        let request = Request::post("/")
            .header(name, value)
            .body(Full::<Bytes>::from("a"))
            .unwrap();
        layer.layer(handler).oneshot(request).await.unwrap();
    };
    let warnings = || log.text().matches("cannot time request bodies").count();
    let unbounded = layer();
    send(&unbounded, ("content-length", "0")).await;
    let minute = Duration::from_secs(60);
    for bounded in [
        layer().max_hold(minute),
        layer().lease(minute),
        layer().request_body_timeout(Duration::MAX),
    ] {
        send(&bounded, ("content-length", "1")).await;
    }
    assert_eq!(warnings(), 0, "{}", log.text());
    for _ in 0..2 {
        send(&unbounded.clone(), ("content-length", "1")).await;
    }
    assert_eq!(warnings(), 1, "{}", log.text());
    assert!(log.text().contains("Full<"), "{}", log.text());
    send(&layer(), ("transfer-encoding", "chunked")).await;
    assert_eq!(warnings(), 2, "{}", log.text());
}

/// A request of HTTP/2 may have a body that no header announces.
#[tokio::test]
async fn body_of_http_2_that_cannot_be_timed_is_logged_although_no_header_announces_it() {
    let log = Log::default();
    let _listening = log.listen();
    let client = Client::in_memory();
    let send = async |version, length: Option<&str>| {
        let handler = service_fn(async |_: Request<Full<Bytes>>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let mut request = Request::post("/").version(version);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let request = request.body(Full::<Bytes>::from("a")).unwrap();
        let layer = LockLayer::new(client.clone()).key(|_: &Parts| "k");
        layer.layer(handler).oneshot(request).await.unwrap();
        log.text().matches("cannot time request bodies").count()
    };
    assert_eq!(send(Version::HTTP_11, None).await, 0, "{}", log.text());
    assert_eq!(send(Version::HTTP_2, Some("0")).await, 0, "{}", log.text());
    assert_eq!(send(Version::HTTP_2, None).await, 1, "{}", log.text());
    assert_eq!(send(Version::HTTP_3, None).await, 2, "{}", log.text());
}

/// Any client can send such requests, so a WARN would be too much. The reason of a refusal is seen without DEBUG.
#[tokio::test]
async fn request_whose_key_is_missing_or_invalid_or_holds_other_data_is_one_line_at_info() {
    let client = Client::in_memory();
    let _permits = client.semaphore("secret:6").try_set_permits(1).await;
    let layer = || LockLayer::new(client.clone());
    let none = || layer().key(|_: &Parts| None::<String>);
    for (layer, told) in [
        (layer().key(|_: &Parts| "secret:6"), "secret:6"),
        (layer().key(|_: &Parts| "secret\n7"), r"secret\n7"),
        (none(), "no valid lock key"),
        (layer().key_template("<header.x-secret>"), "x-secret"),
    ] {
        let log = Log::default();
        let _listening = log.listen();
        refused(layer).await;
        let text = log.text();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("request refused"))
            .collect();
        let [line] = lines[..] else {
            panic!("{told}: {text}");
        };
        assert!(
            line.contains(" INFO ") && line.contains(told),
            "{told}: {line}"
        );
        assert!(
            !text.contains("WARN") && !text.contains("ERROR"),
            "{told}: {text}"
        );
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn error_of_a_lock_is_logged_once_with_its_key_when_it_becomes_a_response() {
    use axum::response::IntoResponse as _;
    use distlock_tower::Rejection;

    let log = Log::default();
    let _listening = log.listen();
    let client = Client::in_memory();
    let _taken = client.lock("secret:5").acquire().await.unwrap();
    let refusals = || log.text().matches("request refused").count();

    let busy = client.lock("secret:5").acquire().wait(Duration::ZERO).await;
    let answer = Rejection::from(busy.unwrap_err()).into_response();
    assert_eq!(answer.status(), 409);
    assert_eq!(refusals(), 1, "{}", log.text());
    assert!(log.text().contains("secret:5"), "{}", log.text());

    // The layer has logged before it asks for an answer.
    let own = LockLayer::new(client.clone()).key(|_: &Parts| "secret:5");
    refused(own.wait(Duration::ZERO).on_reject(|rejection| rejection)).await;
    assert_eq!(refusals(), 2, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn log_contains_the_key_that_answers_omit() {
    let log = Log::default();
    let _listening = log.listen();
    let client = Client::in_memory();

    // A guard has one token, and each key would have another one.
    let two_tokens = LockLayer::new(client.clone())
        .key(|_: &Parts| ["secret:1", "secret:2"])
        .mode(Mode::Fenced);
    refused(two_tokens).await;
    assert!(log.text().contains("ERROR"), "{}", log.text());
    assert!(log.text().contains("fencing token"), "{}", log.text());

    let _guard = client.lock("secret:3").acquire().await.unwrap();
    refused(
        LockLayer::new(client.clone())
            .key(|_: &Parts| "secret:3")
            .wait(Duration::ZERO),
    )
    .await;
    assert!(log.text().contains("secret:3"), "{}", log.text());

    refused(LockLayer::new(client.clone()).key(|_: &Parts| "secret\n4")).await;
    assert!(log.text().contains(r#""secret\n4""#), "{}", log.text());
}

#[tokio::test]
async fn preflight_that_takes_the_lock_is_told_once() {
    let log = Log::default();
    let _listening = log.listen();
    let layer = LockLayer::new(Client::in_memory()).key(|_: &Parts| "k");
    let handler =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let send = async |layer: &LockLayer, method: &str, header: &str| {
        let request = Request::builder().method(method).uri("/");
        let request = request
            .header("origin", "http://shop.example")
            .header(header, "POST");
        let request = request.body(()).unwrap();
        layer.layer(handler).oneshot(request).await.unwrap();
    };
    let told = || log.text().matches("CORS preflight").count();
    send(&layer, "POST", "access-control-request-method").await;
    send(&layer, "OPTIONS", "x-other").await;
    let only_post = layer.clone().methods([http::Method::POST]);
    send(&only_post, "OPTIONS", "access-control-request-method").await;
    assert_eq!(told(), 0, "{}", log.text());
    for _ in 0..2 {
        send(&layer.clone(), "OPTIONS", "access-control-request-method").await;
    }
    assert_eq!(told(), 1, "{}", log.text());
}

/// Nothing in the request is wrong.
#[cfg(feature = "axum")]
#[tokio::test]
async fn extractor_that_lacks_something_of_the_set_up_is_an_error_in_the_log() {
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;

    let log = Log::default();
    let _listening = log.listen();
    let by_address = LockLayer::new(Client::in_memory())
        .key(|ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("from:{}", peer.ip()));
    refused(by_address).await;
    let text = log.text();
    assert!(
        text.contains("ERROR") && text.contains("ConnectInfo"),
        "{text}"
    );
}

/// The spelling of axum's routes.
#[cfg(feature = "axum")]
#[tokio::test]
async fn capture_in_braces_is_an_error_in_the_log_with_the_right_spelling() {
    use axum::body::Body;
    use axum::routing::post;

    let log = Log::default();
    let _listening = log.listen();
    let layer = LockLayer::new(Client::in_memory()).key_template("<method>:{id}");
    let app: axum::Router =
        axum::Router::new().route("/orders/{id}", post(async || "done").route_layer(layer));
    let request = Request::post("/orders/7").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), 500);
    let text = log.text();
    assert!(
        text.contains("ERROR") && text.contains("write `<path.id>`"),
        "{text}"
    );
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn capture_that_the_route_does_not_have_is_an_error_in_the_log_with_those_that_it_has() {
    use axum::body::Body;
    use axum::routing::post;

    let log = Log::default();
    let _listening = log.listen();
    let layer = || LockLayer::new(Client::in_memory()).key_template("order:<path.nr>");
    let send = async |layer: LockLayer, route: &str| {
        let handler = post(async || "done").route_layer(layer);
        let app: axum::Router = axum::Router::new().route(route, handler);
        let request = Request::post("/orders/7").body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap().status()
    };
    assert_eq!(send(layer(), "/orders/{id}").await, 500);
    let text = log.text();
    assert!(
        text.contains("ERROR") && text.contains("`<path.nr>`") && text.contains("it has `id`"),
        "{text}"
    );
    // Who makes it optional means routes with and without the capture.
    assert_eq!(send(layer().optional(), "/orders/{id}").await, 200);
    assert_eq!(send(layer(), "/orders/{nr}").await, 200);
    assert_eq!(send(layer(), "/orders/7").await, 400);
}

#[tokio::test]
async fn refused_request_is_in_the_log_at_info_with_its_key_and_holder_and_the_answer_has_neither()
{
    let log = Log::default();
    let _listening = log.listen();
    let client = Client::in_memory();
    let held = client.lock("secret:8").acquire().await.unwrap();
    let layer = LockLayer::new(&client).key(|_: &Parts| "secret:8");
    let handler = service_fn(
        async |_: Request<()>| -> Result<Response<String>, Infallible> {
            unreachable!("the lock is held")
        },
    );
    let service = layer.wait(Duration::ZERO).layer(handler);
    let answer = service.oneshot(Request::new(())).await.unwrap();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await;
    let body = String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap();
    let (text, owner) = (log.text(), held.owner().to_string());
    let told = text.lines().find(|line| line.contains("request refused"));
    let told = told.unwrap();
    assert!(told.contains("INFO"), "{told}");
    assert!(told.contains("secret:8") && told.contains(&owner), "{told}");
    assert!(body.contains("urn:distlock:busy"), "{body}");
    assert!(!body.contains("secret") && !body.contains(&owner), "{body}");
}

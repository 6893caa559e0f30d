//! Answers to gRPC clients, `busy_status`, and `on_reject`.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use distlock::{Client, MemoryServer, Mode};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{LockLayer, Reason};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC, replicas};

async fn unreachable_handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    unreachable!("the handler must not run")
}

fn by_grpc(content_type: &str) -> Request<()> {
    let request = Request::post("/shop.Orders/Pay").header("content-type", content_type);
    request.body(()).unwrap()
}

/// The headers of a gRPC answer. It is trailers-only, so they contain the whole answer.
async fn grpc(layer: LockLayer) -> HeaderMap {
    let service = layer.layer(service_fn(unreachable_handler));
    let response = service.oneshot(by_grpc("application/grpc")).await.unwrap();
    let (head, body) = response.into_parts();
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-type"], "application/grpc");
    assert!(body.collect().await.unwrap().to_bytes().is_empty());
    head.headers
}

fn keyed(client: &Client) -> LockLayer {
    LockLayer::new(client.clone()).key(|_: &Parts| "secret")
}

/// A mistake that only a request shows.
fn of_two_tokens(client: &Client) -> LockLayer {
    let keyed = LockLayer::new(client).key(|_: &Parts| ["secret", "other"]);
    keyed.mode(Mode::Fenced)
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_grpc_status() {
    let (one, two) = replicas();
    let _guard = two.lock("secret").acquire().await.unwrap();
    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    let down = builder.in_memory(&MemoryServer::new()).unwrap();
    let keyless = LockLayer::new(one.clone()).key(|_: &Parts| "");
    let refusals = [
        (keyed(&one).wait(Duration::ZERO), "10", "1000"),
        (keyed(&down), "14", "5000"),
        (keyless, "3", "-1"),
        (of_two_tokens(&one), "13", "-1"),
    ];
    for (layer, code, pushback) in refusals {
        let headers = grpc(layer).await;
        assert_eq!(headers["grpc-status"], code);
        assert_eq!(headers["grpc-retry-pushback-ms"], pushback, "{code}");
        let message = headers["grpc-message"].to_str().unwrap();
        assert!(!message.is_empty() && !message.contains("secret") && !message.contains('%'));
    }
}

#[tokio::test(start_paused = true)]
async fn loss_under_a_grpc_handler_is_unknown() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    });
    let service = keyed(&client).lease(SEC).layer(handler);
    let response = service.oneshot(by_grpc("application/grpc+proto")).await;
    let headers = response.unwrap().into_parts().0.headers;
    assert_eq!(headers["grpc-status"], "2");
    // The handler may have done something.
    assert_eq!(headers["grpc-retry-pushback-ms"], "-1");
}

#[tokio::test(start_paused = true)]
async fn texts_of_a_rejection_are_those_of_the_default_answer_without_the_key() {
    let (one, two) = replicas();
    let _guard = two.lock("secret").acquire().await.unwrap();
    let keyless = LockLayer::new(one.clone()).key(|_: &Parts| "");
    for layer in [keyed(&one).wait(Duration::ZERO), keyless] {
        let own = layer.on_reject(|rejection| {
            let texts = format!(
                "urn:distlock:{}|{}|{}|{}",
                rejection.reason().name(),
                rejection.reason().title(),
                rejection.detail(),
                rejection.is_retryable()
            );
            assert_eq!(rejection.to_string(), rejection.detail());
            let source = std::error::Error::source(&rejection).map(ToString::to_string);
            assert_eq!(source, rejection.error().map(ToString::to_string));
            let mut answer = rejection.answer();
            answer.headers_mut().insert("texts", texts.parse().unwrap());
            answer
        });
        let service = own.layer(service_fn(unreachable_handler));
        let (head, body) = service
            .oneshot(Request::new(()))
            .await
            .unwrap()
            .into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let said = ["type", "title", "detail"].map(|member| problem[member].as_str().unwrap());
        let said = format!("{}|{}", said.join("|"), problem["retryable"]);
        assert_eq!(head.headers["texts"], said);
        assert!(!said.contains("secret"));
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn answer_of_a_key_function_is_translated_to_grpc() {
    let client = Client::in_memory();
    for (status, code) in [
        (401, "16"),
        (403, "7"),
        (404, "5"),
        (408, "4"),
        (409, "10"),
        (412, "9"),
        (422, "3"),
        (429, "8"),
        (500, "13"),
        (501, "12"),
        (503, "14"),
        (504, "4"),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let layer =
            LockLayer::new(client.clone()).key(move |_: &Parts| Err::<String, _>((status, "text")));
        assert_eq!(grpc(layer).await["grpc-status"], code);
    }
    let own = LockLayer::new(client).key(|_: &Parts| {
        let headers = [("content-type", "application/grpc"), ("grpc-status", "9")];
        Err::<String, _>(headers)
    });
    assert_eq!(grpc(own).await["grpc-status"], "9");
}

#[tokio::test]
async fn content_type_of_grpc_is_compared_as_a_media_type() {
    let client = Client::in_memory();
    let _guard = client.lock("secret").acquire().await.unwrap();
    for content_type in [
        "application/grpc",
        "Application/gRPC",
        "application/grpc+proto",
        "application/grpc+json; charset=utf-8",
        "application/grpc;charset=utf-8",
        "application/grpc ; charset=utf-8",
    ] {
        let service = keyed(&client).wait(Duration::ZERO);
        let service = service.layer(service_fn(unreachable_handler));
        let response = service.oneshot(by_grpc(content_type)).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "10", "{content_type}");
    }
}

#[tokio::test]
async fn other_content_types_get_problem_json() {
    let client = Client::in_memory();
    let _guard = client.lock("secret").acquire().await.unwrap();
    for content_type in [
        "application/json",
        "text/application/grpc",
        "application/grpcfoo",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text; charset=utf-8",
        "application/grpc foo",
        "application/grp",
    ] {
        let service = keyed(&client).wait(Duration::ZERO);
        let service = service.layer(service_fn(unreachable_handler));
        let response = service.oneshot(by_grpc(content_type)).await.unwrap();
        Answer::of(response).await.is_problem("busy", 409, true);
    }
}

#[tokio::test]
async fn busy_status_replaces_409_and_no_other_status() {
    let client = Client::in_memory();
    let _guard = client.lock("secret").acquire().await.unwrap();
    let layer = keyed(&client).busy_status(StatusCode::LOCKED);
    let service = layer.wait(Duration::ZERO);
    let service = service.layer(service_fn(unreachable_handler));
    let response = service.oneshot(Request::new(())).await.unwrap();
    Answer::of(response).await.is_problem("busy", 423, true);

    let service = of_two_tokens(&client).busy_status(StatusCode::LOCKED);
    let service = service.layer(service_fn(unreachable_handler));
    let response = service.oneshot(Request::new(())).await.unwrap();
    Answer::of(response).await.is_problem("config", 500, false);
}

#[tokio::test]
async fn on_reject_gets_all_details_of_the_rejection() {
    let client = Client::in_memory();
    let _guard = client.lock("secret").acquire().await.unwrap();
    let layer = keyed(&client).wait(Duration::ZERO).on_reject(|rejection| {
        assert_eq!(rejection.reason(), Reason::Busy);
        assert_eq!(rejection.status(), 409);
        assert!(rejection.error().is_some_and(distlock::Error::is_busy));
        assert!(!rejection.is_grpc());
        let after = rejection.retry_after().unwrap();
        assert_eq!(rejection.answer().status(), 409);
        let mut own = Response::new(Full::<Bytes>::from(format!("{after:?}")));
        *own.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        own
    });
    let service = layer.layer(service_fn(unreachable_handler));
    let response = service.oneshot(Request::new(())).await.unwrap();
    let answer = Answer::of(response).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.text, "1s");
}

#[tokio::test(start_paused = true)]
async fn on_reject_replaces_each_refusal_but_no_answer_of_a_key_function() {
    let client = Client::in_memory();
    let own = |layer: LockLayer| {
        layer.on_reject(|rejection| {
            Response::new(Full::<Bytes>::from(format!("{:?}", rejection.reason())))
        })
    };
    let reason_of = async |layer: LockLayer| {
        let handler = service_fn(async |_: Request<()>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        });
        let response = own(layer).layer(handler).oneshot(Request::new(())).await;
        Answer::of(response.unwrap()).await.text
    };
    let keyless = LockLayer::new(client.clone()).key(|_: &Parts| "");
    assert_eq!(reason_of(keyless).await, "Key");
    assert_eq!(reason_of(keyed(&client).lease(SEC)).await, "Lost");
    assert_eq!(reason_of(of_two_tokens(&client)).await, "Config");
    #[cfg(feature = "axum")]
    {
        let answers = LockLayer::new(client).key(|_: &Parts| Err::<String, _>("its own"));
        assert_eq!(reason_of(answers).await, "its own");
    }
}

//! Handlers that lock without the layer: what a `distlock::Error` becomes as a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, body::Body};
use distlock::{Client, Error, MemoryServer, distributed_lock, with_client};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{LockLayer, Rejection};
use http::Request;
use http::request::Parts;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC};

#[distributed_lock(key = "order:<id>", wait = 0)]
async fn pay(id: u64) -> Result<String, Error> {
    Ok(format!("paid {id}"))
}

enum PayError {
    Locked(Error),
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Locked(error)
    }
}

impl IntoResponse for PayError {
    fn into_response(self) -> Response {
        let Self::Locked(error) = self;
        Rejection::before_work(error).into_response()
    }
}

#[distributed_lock(key = "order:<id>", wait = 0)]
async fn cancel(id: u64) -> Result<String, PayError> {
    Ok(format!("cancelled {id}"))
}

async fn send(client: &Client, path: &str) -> Answer {
    let paid = async |Path(id): Path<u64>| pay(id).await.map_err(Rejection::before_work);
    let app: Router = Router::new().route("/pay/{id}", post(paid)).route(
        "/cancel/{id}",
        post(async |Path(id): Path<u64>| cancel(id).await),
    );
    let request = Request::post(path).body(Body::empty()).unwrap();
    let response = with_client(client, app.oneshot(request)).await.unwrap();
    Answer::of(response).await
}

/// The answer of the layer to the same acquisition.
async fn answer_of_the_layer(client: &Client) -> Answer {
    let layer = LockLayer::new(client).key(|_: &Parts| "order:1");
    let handler = service_fn(async |_: Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
    });
    let responding = layer.wait(Duration::ZERO).layer(handler);
    Answer::of(responding.oneshot(Request::new(())).await.unwrap()).await
}

#[tokio::test]
async fn annotated_function_that_is_busy_answers_as_the_layer_does() {
    let client = Client::in_memory();
    assert_eq!(send(&client, "/pay/1").await.text, "paid 1");
    let _taken = client.lock("order:1").acquire().lease(4 * SEC).await;
    for path in ["/pay/1", "/cancel/1"] {
        let answer = send(&client, path).await;
        answer.is_problem("busy", 409, true);
        assert_eq!(answer.retry_after, Some(4));
        assert_eq!(answer.text, answer_of_the_layer(&client).await.text);
    }
}

#[tokio::test(start_paused = true)]
async fn annotated_function_without_a_server_answers_as_the_layer_does() {
    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&MemoryServer::new()).unwrap();
    let answer = send(&client, "/pay/1").await;
    answer.is_problem("unavailable", 503, true);
    assert_eq!(answer.retry_after, Some(5));
    assert_eq!(answer.text, answer_of_the_layer(&client).await.text);
}

/// The answer of a handler that works and then ends by the `?` behind `failing`.
async fn answer_after_work<F, R>(failing: F) -> Answer
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send,
{
    let works = Arc::new(AtomicU64::new(0));
    let counted = works.clone();
    let handler = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
        failing().await?;
        Ok::<_, Rejection>("paid")
    };
    let app: Router = Router::new().route("/", post(handler));
    let request = Request::post("/").body(Body::empty()).unwrap();
    let answer = Answer::of(app.oneshot(request).await.unwrap()).await;
    assert_eq!(works.load(Ordering::Relaxed), 1);
    assert_eq!(answer.retry_after, None, "{answer:?}");
    let told = answer
        .text
        .contains("It is unknown how much of the request was done");
    assert!(told, "{answer:?}");
    answer
}

#[tokio::test(start_paused = true)]
async fn release_that_fails_after_the_work_does_not_invite_the_client_to_send_the_request_again() {
    let server = MemoryServer::new();
    let client = Client::builder().in_memory(&server).unwrap();
    let answer = answer_after_work(move || {
        let (server, client) = (server.clone(), client.clone());
        async move {
            let guard = client.lock("order:1").acquire().await?;
            server.take_down();
            guard.release().await
        }
    });
    answer.await.is_problem("unavailable", 503, false);
}

#[tokio::test]
async fn second_lock_that_is_busy_after_the_work_does_not_invite_the_client_to_send_the_request_again()
 {
    let client = Client::in_memory();
    let _taken = client.lock("order:2").acquire().await.unwrap();
    let answer = answer_after_work(move || {
        let lock = client.lock("order:2");
        async move { lock.acquire().wait(Duration::ZERO).await.map(drop) }
    });
    answer.await.is_problem("busy", 409, false);
}

#[tokio::test]
async fn key_that_is_not_valid_after_the_work_does_not_invite_the_client_to_correct_the_request() {
    let client = Client::in_memory();
    let answer = answer_after_work(move || {
        let lock = client.lock("");
        async move { lock.acquire().await.map(drop) }
    });
    answer.await.is_problem("key", 400, false);
}

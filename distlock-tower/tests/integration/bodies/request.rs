//! The bound on the time that a request's body takes while its lock is held.

use std::convert::Infallible;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use distlock::Client;
use distlock_tower::{BoxError, Held, HoldUntil, LockLayer, Reason};
use futures_util::stream::{self, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, DEADLINE, SEC, freed};

const KEY: &str = "order:1";

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|_: &Parts| KEY)
}

/// A body whose pieces come at this interval, and then nothing more, not even its end.
fn dripping(pieces: usize, interval: Duration) -> Body {
    let pieces = stream::iter(0..pieces).then(move |_| async move {
        sleep(interval).await;
        Ok::<_, Infallible>(Bytes::from("x"))
    });
    Body::from_stream(pieces.chain(stream::pending()))
}

/// A body that ends after its only piece.
fn piece() -> Body {
    Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from("x"))]))
}

fn request<B>(body: B) -> Request<B> {
    Request::post("/").body(body).unwrap()
}

/// Reads the body, and responds with what it came to.
async fn read<B>(request: Request<B>) -> Result<Response<Body>, Infallible>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    let text = match request.into_body().collect().await {
        Ok(body) => format!("{} bytes", body.to_bytes().len()),
        Err(error) => format!("failed: {}", error.into()),
    };
    Ok(Response::new(Body::from(text)))
}

/// Sends a request to a handler that reads its body, and returns the answer and the time that it took.
async fn send<B>(layer: LockLayer, request: Request<B>) -> (Answer, Duration)
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + 'static,
{
    let since = Instant::now();
    let responding = layer.layer(service_fn(read)).oneshot(request);
    let response = timeout(1000 * SEC, responding).await.expect("no answer");
    let took = since.elapsed();
    (Answer::of(response.unwrap()).await, took)
}

#[tokio::test(start_paused = true)]
async fn body_that_stops_arriving_is_408_after_30_s_and_the_lock_is_free() {
    let client = Client::in_memory();
    let (answer, took) = send(layer(&client), request(dripping(1, SEC))).await;
    answer.is_problem("body-timeout", 408, false);
    assert_eq!(took.as_secs(), 30);
    assert!(!client.lock(KEY).is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn body_that_drips_is_cut_at_the_same_time_in_all() {
    let client = Client::in_memory();
    let (answer, took) = send(layer(&client), request(dripping(100, 7 * SEC))).await;
    answer.is_problem("body-timeout", 408, false);
    assert_eq!(took.as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn bound_is_settable_and_can_be_none() {
    let client = Client::in_memory();
    let short = layer(&client).request_body_timeout(SEC);
    let (answer, took) = send(short, request(dripping(1, SEC / 2))).await;
    answer.is_problem("body-timeout", 408, false);
    assert_eq!(took, SEC);
    let unlimited = layer(&client).request_body_timeout(Duration::MAX);
    let sending = send(unlimited, request(dripping(1, SEC)));
    assert!(timeout(300 * SEC, sending).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn body_that_arrives_in_time_reaches_the_handler_unchanged() {
    let client = Client::in_memory();
    let slow = stream::iter(0..5).then(|_| async {
        sleep(5 * SEC).await;
        Ok::<_, BoxError>(Frame::data(Bytes::from("x")))
    });
    let trailers = stream::iter([Ok(Frame::trailers(HeaderMap::new()))]);
    let body = Body::new(StreamBody::new(slow.chain(trailers)));
    let handler = service_fn(async |request: Request<Body>| {
        let body = request.into_body().collect().await.unwrap();
        assert!(body.trailers().is_some());
        Ok::<_, Infallible>(Response::new(Body::from(body.to_bytes())))
    });
    let response = layer(&client).layer(handler).oneshot(request(body)).await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "xxxxx");

    let sized = service_fn(async |request: Request<Body>| {
        let hint = http_body::Body::size_hint(request.body()).exact();
        Ok::<_, Infallible>(Response::new(Body::from(format!("{hint:?}"))))
    });
    let response = layer(&client).layer(sized).oneshot(request("four".into()));
    assert_eq!(Answer::of(response.await.unwrap()).await.text, "Some(4)");
}

#[tokio::test(start_paused = true)]
async fn handler_that_works_longer_than_the_bound_is_left_alone() {
    let client = Client::in_memory();
    // Before it reads, between two pieces, and after it has read.
    let handler = service_fn(async |request: Request<Body>| {
        let mut body = request.into_body();
        sleep(600 * SEC).await;
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len();
            sleep(600 * SEC).await;
        }
        Ok::<_, Infallible>(Response::new(Body::from(format!("{read} bytes"))))
    });
    let pieces = stream::iter(["a", "b"]).then(|text| async move {
        sleep(10 * SEC).await;
        Ok::<_, Infallible>(Bytes::from(text))
    });
    let body = Body::from_stream(pieces);
    let response = layer(&client).layer(handler).oneshot(request(body)).await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "2 bytes");
}

/// The handler asks for the next piece, works for long while the piece arrives, and comes back to it.
#[tokio::test(start_paused = true)]
async fn piece_that_arrived_while_the_handler_worked_counts_only_until_its_arrival() {
    let client = Client::in_memory();
    let handler = service_fn(async |request: Request<Body>| {
        let mut body = request.into_body();
        tokio::select! {
            biased;
            _ = body.frame() => unreachable!("nothing has arrived yet"),
            () = tokio::task::yield_now() => {}
        }
        sleep(600 * SEC).await;
        let read = to_bytes(body, 9).await.unwrap();
        Ok::<_, Infallible>(Response::new(Body::from(read)))
    });
    let (more, mut pieces) = mpsc::unbounded_channel::<Result<Bytes, Infallible>>();
    let body = Body::from_stream(stream::poll_fn(move |cx| pieces.poll_recv(cx)));
    let responding = layer(&client).layer(handler).oneshot(request(body));
    let sending = async {
        sleep(SEC).await;
        more.send(Ok("a".into())).unwrap();
        sleep(610 * SEC).await;
        more.send(Ok("b".into())).unwrap();
        drop(more);
    };
    let (response, ()) = tokio::join!(responding, sending);
    assert_eq!(Answer::of(response.unwrap()).await.text, "ab");
}

/// Some bytes arrive while the handler works, but no piece: half of a chunk's header, for example.
#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_piece_yet_end_the_wait_that_they_woke() {
    let client = Client::in_memory();
    let handler = service_fn(async |request: Request<Body>| {
        let mut body = request.into_body();
        tokio::select! {
            biased;
            _ = body.frame() => unreachable!("nothing has arrived yet"),
            () = tokio::task::yield_now() => {}
        }
        sleep(40 * SEC).await;
        let read = to_bytes(body, 9).await.unwrap();
        Ok::<_, Infallible>(Response::new(Body::from(read)))
    });
    let (more, mut bytes) = mpsc::unbounded_channel::<Option<Bytes>>();
    // `None` is a wake-up that brought no piece.
    let pieces = stream::poll_fn(move |cx| {
        Poll::Ready(match ready!(bytes.poll_recv(cx)) {
            Some(Some(piece)) => Some(Ok::<_, Infallible>(piece)),
            Some(None) => {
                assert!(bytes.poll_recv(cx).is_pending());
                return Poll::Pending;
            }
            None => None,
        })
    });
    let body = Body::from_stream(pieces);
    let responding = layer(&client).layer(handler).oneshot(request(body));
    let sending = async {
        sleep(SEC).await;
        more.send(None).unwrap();
        sleep(40 * SEC).await;
        more.send(Some("a".into())).unwrap();
        drop(more);
    };
    let (response, ()) = tokio::join!(responding, sending);
    assert_eq!(Answer::of(response.unwrap()).await.text, "a");
}

#[tokio::test(start_paused = true)]
async fn stream_of_a_grpc_client_is_cut_too_and_the_answer_is_its_status() {
    let client = Client::in_memory();
    let mut call = request(dripping(1, SEC));
    *call.version_mut() = Version::HTTP_2;
    let grpc = "application/grpc".parse().unwrap();
    call.headers_mut().insert("content-type", grpc);
    let responding = layer(&client).layer(service_fn(read)).oneshot(call);
    let response = timeout(100 * SEC, responding).await.expect("no answer");
    assert_eq!(response.unwrap().headers()["grpc-status"], "4");
    assert!(!client.lock(KEY).is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn unlocked_request_is_not_timed() {
    let client = Client::in_memory();
    let unlocked = layer(&client).when(|_| false);
    let sending = send(unlocked, request(dripping(1, SEC)));
    assert!(timeout(300 * SEC, sending).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn body_that_is_read_after_the_release_is_not_timed() {
    let client = Client::in_memory();
    let (done, read) = oneshot::channel();
    let done = std::cell::Cell::new(Some(done));
    let handler = service_fn(async |request: Request<Body>| {
        let done = done.take().unwrap();
        tokio::spawn(async move {
            let body = request.into_body().collect().await;
            done.send(body.map(|body| body.to_bytes())).unwrap();
        });
        // The task begins to wait for the body under the lock.
        sleep(SEC).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let pieces = stream::iter([60 * SEC]).then(|after| async move {
        sleep(after).await;
        Ok::<_, Infallible>(Bytes::from("late"))
    });
    let body = Body::from_stream(pieces);
    let response = layer(&client).layer(handler).oneshot(request(body)).await;
    assert_eq!(response.unwrap().status(), 200);
    let body = timeout(100 * SEC, read).await.unwrap().unwrap();
    assert_eq!(body.unwrap(), "late");
}

#[tokio::test(start_paused = true)]
async fn body_that_another_task_reads_is_cut_too() {
    let client = Client::in_memory();
    let (done, read) = oneshot::channel();
    let done = std::cell::Cell::new(Some(done));
    let handler = service_fn(async |request: Request<Body>| {
        let done = done.take().unwrap();
        tokio::spawn(async move {
            let body = request.into_body().collect().await;
            done.send(body.map(drop)).unwrap();
        });
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    let responding = layer(&client)
        .layer(handler)
        .oneshot(request(dripping(1, SEC)));
    let response = timeout(100 * SEC, responding).await.expect("no answer");
    Answer::of(response.unwrap())
        .await
        .is_problem("body-timeout", 408, false);
    let error = read.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("30s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn response_that_echoes_a_slow_body_ends_in_an_error_and_frees_the_lock() {
    let client = Client::in_memory();
    let echo = service_fn(async |request: Request<Body>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let layer = layer(&client).hold_until(HoldUntil::Body);
    let response = layer.layer(echo).oneshot(request(dripping(1, SEC))).await;
    let mut body = response.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(client.lock(KEY).is_locked().await.unwrap());
    let cut = timeout(100 * SEC, body.frame()).await.expect("not cut");
    let error = cut.unwrap().unwrap_err();
    assert!(error.to_string().contains("30s"), "{error}");
    assert!(timeout(DEADLINE, body.frame()).await.unwrap().is_none());
    freed(&client, KEY).await;
}

#[tokio::test(start_paused = true)]
async fn guard_that_the_handler_kept_outlives_the_cut() {
    let client = Client::in_memory();
    let (send_guard, mut kept) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<Body>| {
        let held = request.extensions().get::<Held>().unwrap();
        send_guard.send(held.keep().unwrap()).unwrap();
        read(request).await
    });
    let responding = layer(&client)
        .layer(handler)
        .oneshot(request(dripping(1, SEC)));
    let response = timeout(100 * SEC, responding).await.expect("no answer");
    assert_eq!(response.unwrap().status(), 408);
    assert!(kept.recv().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn guard_that_the_handler_kept_and_ended_bounds_the_body_no_more() {
    let client = Client::in_memory();
    let handler = service_fn(async |request: Request<Body>| {
        let held = request.extensions().get::<Held>().unwrap();
        let guard = held.keep().unwrap();
        let (parts, mut body) = request.into_parts();
        assert!(body.frame().await.unwrap().is_ok());
        guard.release().await.unwrap();
        read(Request::from_parts(parts, body)).await
    });
    let pieces = stream::iter([Duration::ZERO, SEC, 60 * SEC]).then(|after| async move {
        sleep(after).await;
        Ok::<_, Infallible>(Bytes::from("piece"))
    });
    let body = Body::from_stream(pieces);
    let responding = layer(&client).layer(handler).oneshot(request(body));
    let response = timeout(100 * SEC, responding).await.expect("no answer");
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_every_known_type_are_timed() {
    async fn is_cut<B>(body: B)
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + 'static,
    {
        let client = Client::in_memory();
        let (answer, took) = send(layer(&client), request(body)).await;
        answer.is_problem("body-timeout", 408, false);
        assert_eq!(took.as_secs(), 30, "{}", std::any::type_name::<B>());
    }
    let slow = || {
        StreamBody::new(
            stream::once(async { Ok::<_, BoxError>(Frame::data(Bytes::from("x"))) })
                .chain(stream::pending()),
        )
    };
    is_cut(Body::new(slow())).await;
    is_cut(UnsyncBoxBody::new(slow())).await;
    is_cut(BoxBody::new(slow())).await;
    is_cut(Limited::new(Body::new(slow()), 9)).await;
    is_cut(Limited::new(UnsyncBoxBody::new(slow()), 9)).await;
    is_cut(Limited::new(BoxBody::new(slow()), 9)).await;
}

/// Two layers in one `ServiceBuilder`: the inner one gets the `KeyedBody` of the outer one.
#[tokio::test(start_paused = true)]
async fn body_that_a_lock_layer_outside_has_not_read_is_timed_and_one_that_it_has_read_is_not() {
    async fn inside<B>(reads: bool, body: B) -> Answer
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let client = Client::in_memory();
        let outer = LockLayer::new(&client)
            .key_from_body(9, |_, _| "outer")
            .when(move |_| reads);
        let stack = outer.layer(layer(&client).layer(service_fn(read)));
        let response = timeout(100 * SEC, stack.oneshot(request(body))).await;
        Answer::of(response.expect("no answer").unwrap()).await
    }
    let slow = || dripping(1, SEC);
    let cut = inside(false, slow()).await;
    cut.is_problem("body-timeout", 408, false);
    let cut = inside(false, Limited::new(slow(), 9)).await;
    cut.is_problem("body-timeout", 408, false);
    assert_eq!(inside(true, piece()).await.text, "1 bytes");
}

#[tokio::test]
async fn limit_of_a_timed_body_stays_in_force() {
    let client = Client::in_memory();
    let sized = |limit| request(Limited::new(piece(), limit));
    assert_eq!(send(layer(&client), sized(1)).await.0.text, "1 bytes");
    let (refused, _) = send(layer(&client), sized(0)).await;
    assert_eq!(refused.text, "failed: length limit exceeded");
}

#[tokio::test(start_paused = true)]
async fn own_answer_tells_a_slow_body_from_a_loss_and_http1_is_told_to_close() {
    let client = Client::in_memory();
    for (version, closes) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
        let own = layer(&client).on_reject(|rejection| {
            assert_eq!(rejection.reason(), Reason::BodyTimeout);
            assert!(rejection.retry_after().is_none() && rejection.error().is_none());
            (rejection.status(), "too slow")
        });
        let mut slow = request(dripping(0, SEC));
        *slow.version_mut() = version;
        let responding = own.layer(service_fn(read)).oneshot(slow);
        let response = timeout(100 * SEC, responding).await.expect("no answer");
        let response = response.unwrap();
        assert_eq!(response.headers().contains_key("connection"), closes);
        assert_eq!(Answer::of(response).await.text, "too slow");
    }
}

//! Bodies that end otherwise: by an error, a drop, a loss, or outside a runtime.

use bytes::Bytes;
use distlock::Client;
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::BoxError;
use futures_util::FutureExt as _;
use futures_util::stream;
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};

use super::{Frames, layer, locked, respond, text};
use crate::support::{SEC, freed};

/// Timers do not exist there, as the delay of this release would need.
#[tokio::test]
async fn body_that_is_read_outside_a_runtime_is_released_in_the_background() {
    let faults = Faults::new();
    faults.always(Op::Release, Fault::Delay(SEC / 100));
    let client = Client::builder().faults(&faults);
    let client = client.in_memory(&distlock::MemoryServer::new()).unwrap();
    let sized = respond(layer(&client), Full::<Bytes>::from("done")).await;
    let read = std::thread::spawn(|| {
        let mut body = sized.into_body();
        let frame = body.frame().now_or_never().unwrap();
        (frame.unwrap().unwrap().into_data().unwrap(), body)
    });
    let (data, body) = tokio::task::spawn_blocking(|| read.join().unwrap())
        .await
        .unwrap();
    assert_eq!(data, "done");
    assert!(body.is_end_stream());
    freed(&client, "k").await;
}

#[tokio::test]
async fn error_of_the_body_is_forwarded_and_ends_the_hold() {
    let client = Client::in_memory();
    let frames: Frames = vec![Err("broken".into()), Ok(Frame::data("never".into()))];
    let response = respond(layer(&client), StreamBody::new(stream::iter(frames))).await;
    let mut body = response.into_body();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "broken");
    freed(&client, "k").await;
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn body_dropped_unread_ends_the_hold() {
    let client = Client::in_memory();
    let frames = stream::pending::<Result<Frame<Bytes>, BoxError>>();
    let response = respond(layer(&client), StreamBody::new(frames)).await;
    assert!(locked(&client).await);
    drop(response);
    freed(&client, "k").await;
}

#[tokio::test(start_paused = true)]
async fn loss_ends_the_body_in_an_error_while_it_waits_for_a_frame() {
    let client = Client::in_memory();
    let (more, mut frames) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
    let frames = stream::poll_fn(move |cx| frames.poll_recv(cx));
    let response = respond(layer(&client).lease(5 * SEC), StreamBody::new(frames)).await;
    let mut body = response.into_body();
    more.try_send(Ok(Frame::data("a".into()))).unwrap();
    assert_eq!(text(&mut body).await, "a");
    let since = tokio::time::Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!((SEC..6 * SEC).contains(&since.elapsed()));
    let lost = error.downcast_ref::<distlock::Error>();
    assert!(lost.is_some_and(distlock::Error::is_lost), "{error}");
    // The inner body is dropped.
    assert!(more.is_closed());
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn loss_found_at_the_release_replaces_the_end_of_the_body() {
    let client = Client::in_memory();
    let mut body = respond(layer(&client), Full::<Bytes>::from("done"))
        .await
        .into_body();
    client.lock("k").force_release().await.unwrap();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.downcast_ref::<distlock::Error>().unwrap().is_lost());
    assert!(body.frame().await.is_none());
}

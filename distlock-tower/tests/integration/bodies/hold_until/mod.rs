//! `HoldUntil::Body`: when the hold ends, and how the body ends then. And `LockInfo`.

mod errors;
mod never_sent;
mod sized;

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock::Client;
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{BoxError, Held, HoldBody, HoldUntil, LockInfo, LockLayer};
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{SEC, freed};

type Frames = Vec<Result<Frame<Bytes>, BoxError>>;

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client.clone())
        .key(|_: &Parts| "k")
        .hold_until(HoldUntil::Body)
}

async fn locked(client: &Client) -> bool {
    client.lock("k").is_locked().await.unwrap()
}

/// The response of a service with this body, behind the layer.
async fn respond<B>(layer: LockLayer, body: B) -> Response<HoldBody<B>>
where
    B: Body<Data = Bytes>,
{
    let body = Cell::new(Some(body));
    let handler =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(body.take().unwrap())));
    let response = layer.layer(handler).oneshot(Request::new(())).await;
    response.unwrap()
}

async fn text<B>(body: &mut HoldBody<B>) -> Bytes
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let frame = body.frame().await.unwrap().unwrap();
    frame.into_data().unwrap()
}

#[tokio::test]
async fn held_until_the_end_of_the_stream_is_passed_on() {
    let client = Client::in_memory();
    let frames: Frames = ["a", "b"].map(|text| Ok(Frame::data(text.into()))).into();
    let response = respond(layer(&client), StreamBody::new(stream::iter(frames))).await;
    let mut body = response.into_body();
    for expected in ["a", "b"] {
        assert_eq!(text(&mut body).await, expected);
        assert!(locked(&client).await && !body.is_end_stream());
    }
    assert!(body.frame().await.is_none());
    assert!(!locked(&client).await && body.is_end_stream());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn last_frame_waits_for_the_release_and_counts_in_the_size_hint() {
    let faults = Faults::new();
    let builder = Client::builder().faults(&faults);
    let client = builder.in_memory(&distlock::MemoryServer::new()).unwrap();
    let mut body = respond(layer(&client), Full::<Bytes>::from("done"))
        .await
        .into_body();
    faults.next(Op::Release, Fault::DelayReply(SEC));
    let since = tokio::time::Instant::now();
    assert!(body.frame().now_or_never().is_none());
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(4), false)
    );
    assert_eq!(text(&mut body).await, "done");
    assert!(since.elapsed() >= SEC);
}

#[tokio::test]
async fn empty_body_ends_the_hold_before_the_response() {
    let client = Client::in_memory();
    let response = respond(layer(&client), Empty::<Bytes>::new()).await;
    assert!(!locked(&client).await);
    assert_eq!(format!("{:?}", response.body()), r#"HoldBody("Inner")"#);
}

#[tokio::test]
async fn free_when_the_trailers_are_received() {
    let client = Client::in_memory();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let frames: Frames = vec![Ok(Frame::trailers(trailers))];
    let response = respond(layer(&client), StreamBody::new(stream::iter(frames))).await;
    let mut body = response.into_body();
    let trailers = body.frame().await.unwrap().unwrap().into_trailers();
    assert_eq!(trailers.unwrap()["x-sum"], "1");
    assert!(!locked(&client).await && body.is_end_stream());
    assert!(body.frame().await.is_none());
}

/// A body that re-enters its own hold at each poll and when it is dropped, and notes whether that works.
struct Reenters {
    client: Client,
    polls: usize,
    inside: Arc<AtomicBool>,
}

impl Reenters {
    fn look(&self) {
        let again = self.client.lock("k").try_acquire().now_or_never();
        if !matches!(again, Some(Ok(Some(_)))) {
            self.inside.store(false, Ordering::SeqCst);
        }
    }
}

impl Body for Reenters {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.look();
        self.polls -= 1;
        let more = self.polls > 0;
        Poll::Ready(more.then(|| Ok(Frame::data("x".into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

impl Drop for Reenters {
    fn drop(&mut self) {
        self.look();
    }
}

#[tokio::test]
async fn body_is_polled_and_dropped_inside_the_section() {
    let client = Client::in_memory();
    for read_to_its_end in [true, false] {
        let inside = Arc::new(AtomicBool::new(true));
        let own = Reenters {
            client: client.clone(),
            polls: 3,
            inside: Arc::clone(&inside),
        };
        let mut body = respond(layer(&client), own).await.into_body();
        assert_eq!(text(&mut body).await, "x");
        if read_to_its_end {
            assert_eq!(body.collect().await.unwrap().to_bytes(), "x");
        } else {
            drop(body);
        }
        assert!(inside.load(Ordering::SeqCst), "{read_to_its_end}");
        freed(&client, "k").await;
    }
}

#[tokio::test(start_paused = true)]
async fn next_request_waits_for_the_body_of_the_previous_one() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| {
        let slow = stream::iter(0..3).then(|_| async {
            tokio::time::sleep(SEC).await;
            Ok::<_, BoxError>(Frame::data(Bytes::from("x")))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(slow)))
    });
    let service = layer(&client).layer(handler);
    let since = tokio::time::Instant::now();
    let one = async {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let other = async {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let (one, other) = tokio::join!(one, other);
    assert_eq!((one, other), (Bytes::from("xxx"), Bytes::from("xxx")));
    assert!(since.elapsed() >= 6 * SEC);
}

#[tokio::test]
async fn guard_kept_by_the_handler_outlives_the_body() {
    let client = Client::in_memory();
    let (send, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        send.send(held.keep().unwrap()).unwrap();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    });
    let response = layer(&client).layer(handler).oneshot(Request::new(()));
    let body = response.await.unwrap().into_body();
    let guard = kept.recv().await.unwrap();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "done");
    assert!(guard.is_held() && locked(&client).await);
}

#[tokio::test(start_paused = true)]
async fn responses_have_the_times_waited_and_held() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| {
        tokio::time::sleep(2 * SEC).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    });
    for layer in [
        layer(&client),
        layer(&client).hold_until(HoldUntil::Response),
    ] {
        let service = layer.clone().layer(handler);
        let taken = client.lock("k").acquire().await.unwrap();
        let (response, _) = tokio::join!(service.oneshot(Request::new(())), async {
            tokio::time::sleep(SEC).await;
            taken.release().await.unwrap();
        });
        let info = *response.unwrap().extensions().get::<LockInfo>().unwrap();
        assert!((SEC..SEC * 3 / 2).contains(&info.waited), "{info:?}");
        assert!((2 * SEC..SEC * 5 / 2).contains(&info.held), "{info:?}");

        freed(&client, "k").await;
        let _taken = client.lock("k").acquire().await.unwrap();
        let refused = layer
            .wait(SEC)
            .layer(handler)
            .oneshot(Request::new(()))
            .await;
        let info = *refused.unwrap().extensions().get::<LockInfo>().unwrap();
        assert!((SEC..SEC * 3 / 2).contains(&info.waited), "{info:?}");
        assert!(info.held.is_zero());
    }
}

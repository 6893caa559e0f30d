//! Bodies that say how long they are: the hold ends with their last byte, and not with their last frame.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock::Client;
use distlock_tower::{BoxError, HoldBody};
use futures_util::FutureExt as _;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::header::TRAILER;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};

use super::{Frames, layer, locked, respond, text};
use crate::support::SEC;

#[tokio::test]
async fn free_when_the_last_frame_of_a_sized_body_is_received() {
    let client = Client::in_memory();
    let body = Full::<Bytes>::from("done");
    let mut body = respond(layer(&client), body).await.into_body();
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(4), false)
    );
    assert!(locked(&client).await);
    assert_eq!(text(&mut body).await, "done");
    assert!(!locked(&client).await);
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(0), true)
    );
}

/// A body of these frames, in a response with this `content-length`.
async fn announced<S>(client: &Client, length: &'static str, frames: S) -> HoldBody<StreamBody<S>>
where
    S: Stream<Item = Result<Frame<Bytes>, BoxError>>,
{
    let body = Cell::new(Some(StreamBody::new(frames)));
    let handler = service_fn(async |_: Request<()>| {
        let response = Response::builder().header("content-length", length);
        Ok::<_, Infallible>(response.body(body.take().unwrap()).unwrap())
    });
    let response = layer(client).layer(handler).oneshot(Request::new(())).await;
    response.unwrap().into_body()
}

#[tokio::test]
async fn free_when_the_last_announced_byte_is_received() {
    let client = Client::in_memory();
    let frames: Frames = ["a", "", "b"]
        .map(|text| Ok(Frame::data(text.into())))
        .into();
    let endless = stream::iter(frames).chain(stream::pending());
    let mut body = announced(&client, "2", endless).await;
    for expected in ["a", ""] {
        assert_eq!(text(&mut body).await, expected);
        assert!(locked(&client).await && !body.is_end_stream());
    }
    assert_eq!(text(&mut body).await, "b");
    assert!(!locked(&client).await);
    assert_eq!(body.size_hint().exact(), Some(0));
    // Trailers may follow, or not.
    assert!(body.frame().now_or_never().is_none());
    // A server does not poll a body whose announced length is 0.
    let _body = announced(&client, "0", stream::pending()).await;
    assert!(!locked(&client).await);
}

#[tokio::test]
async fn trailers_after_the_last_announced_byte_are_passed_on() {
    let client = Client::in_memory();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let frames: Frames = vec![Ok(Frame::data("ab".into())), Ok(Frame::trailers(trailers))];
    let mut body = announced(&client, "2", stream::iter(frames)).await;
    assert_eq!(text(&mut body).await, "ab");
    assert!(!locked(&client).await && !body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    let trailers = body.frame().await.unwrap().unwrap().into_trailers();
    assert_eq!(trailers.unwrap()["x-sum"], "1");
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn trailers_that_come_after_the_last_announced_byte_follow_the_release() {
    let client = Client::in_memory();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let late = stream::once(async {
        tokio::time::sleep(SEC).await;
        Ok(Frame::trailers(trailers))
    });
    let data = stream::iter([Ok(Frame::data("ab".into()))]);
    let mut body = announced(&client, "2", data.chain(Box::pin(late))).await;
    let since = tokio::time::Instant::now();
    assert_eq!(text(&mut body).await, "ab");
    // The last byte waits neither for the trailers nor for the lock.
    assert!(since.elapsed() < SEC && !locked(&client).await);
    assert!(!body.is_end_stream());
    let trailers = body.frame().await.unwrap().unwrap().into_trailers();
    assert_eq!(trailers.unwrap()["x-sum"], "1");
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

fn empty() -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::new()))
}

#[tokio::test]
async fn trailers_behind_empty_data_after_the_last_announced_byte_are_passed_on() {
    let client = Client::in_memory();
    let trailers = || {
        let trailers = HeaderMap::from_iter([(TRAILER, "1".parse().unwrap())]);
        Ok(Frame::trailers(trailers))
    };
    let at_once: Frames = vec![empty(), empty(), trailers()];
    let later: Frames = vec![empty(), trailers()];
    let pause = stream::once(async {
        tokio::task::yield_now().await;
        empty()
    });
    let at_once = stream::iter(at_once).boxed();
    let after_the_release = pause.chain(stream::iter(later)).boxed();
    for rest in [at_once, after_the_release] {
        let data = stream::iter([Ok(Frame::data("ab".into()))]);
        let mut body = announced(&client, "2", data.chain(rest)).await;
        assert_eq!(text(&mut body).await, "ab");
        assert!(!locked(&client).await && !body.is_end_stream());
        let trailers = body.frame().await.unwrap().unwrap().into_trailers();
        assert_eq!(trailers.unwrap()[TRAILER], "1");
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }
}

#[tokio::test]
async fn endless_empty_data_after_the_last_announced_byte_leaves_the_thread_to_others() {
    let client = Client::in_memory();
    let data = stream::iter([Ok(Frame::data("ab".into()))]);
    let mut body = announced(&client, "2", data.chain(stream::repeat_with(empty))).await;
    assert_eq!(text(&mut body).await, "ab");
    assert!(!locked(&client).await);
    // Its last byte was delivered, so nobody needs the rest. Each poll ends.
    assert!(body.frame().now_or_never().is_none());
}

#[tokio::test]
async fn error_and_data_after_the_last_announced_byte_end_the_body() {
    let client = Client::in_memory();
    let after = |frame| {
        let later = stream::once(async move {
            tokio::task::yield_now().await;
            frame
        });
        stream::iter([Ok(Frame::data("ab".into()))]).chain(Box::pin(later))
    };
    let mut body = announced(&client, "2", after(Err("broken".into()))).await;
    assert_eq!(text(&mut body).await, "ab");
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "broken");
    assert!(body.frame().await.is_none() && body.is_end_stream());
    let mut body = announced(&client, "2", after(Ok(Frame::data("more".into())))).await;
    assert_eq!(text(&mut body).await, "ab");
    assert!(body.frame().await.is_none() && body.is_end_stream());
}

/// A body with an exact size hint that does not implement `is_end_stream`.
struct Sized(u64);

impl Body for Sized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let more = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        Poll::Ready(more.then(|| Ok(Frame::data("x".into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn free_at_the_last_byte_of_a_body_that_only_knows_its_size() {
    let client = Client::in_memory();
    let mut body = respond(layer(&client), Sized(2)).await.into_body();
    assert_eq!(text(&mut body).await, "x");
    assert!(locked(&client).await);
    assert_eq!(text(&mut body).await, "x");
    assert!(!locked(&client).await && body.frame().await.is_none());
    let _body = respond(layer(&client), Sized(0)).await;
    assert!(!locked(&client).await);
}

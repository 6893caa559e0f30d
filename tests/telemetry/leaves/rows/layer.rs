//! The layers: the futures of requests, and the bodies of their responses.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use bytes::Bytes;
use distlock::{Mode, current};
use distlock_tests::LockKind;
use distlock_tower::key::KeyedBody;
use distlock_tower::{ClientLayer, Held, HoldUntil, LockLayer, ServiceLockLayer};
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use tower::{Layer as _, Service as _, service_fn};

use super::attribute::guarded_by_the_current_client;
use super::{Row, WORLDS, body};
use crate::play::{PATIENCE, Play};

/// Ends by itself, and so soon that a handler can wait for that.
const SHORT: Duration = Duration::from_millis(50);

/// With the way in which a layer takes such a lock.
const KINDS: [(LockKind, Mode); 6] = [
    (LockKind::Reentrant, Mode::Reentrant),
    (LockKind::Fair, Mode::Fair),
    (LockKind::Write, Mode::Write),
    (LockKind::Read, Mode::Read),
    (LockKind::Multi, Mode::Reentrant),
    (LockKind::Red, Mode::Reentrant),
];

type Answer<B> = Result<Response<B>, Infallible>;

fn layer(play: &Play) -> LockLayer {
    let keys = play.keys();
    LockLayer::new(play.source())
        .key(move |_: &Parts| keys.clone())
        .wait(PATIENCE)
}

fn request() -> Request<Full<Bytes>> {
    Request::new(Full::from("order"))
}

async fn handler<B>(_: Request<B>) -> Answer<Full<Bytes>> {
    body().await;
    Ok(Response::new(Full::from("paid")))
}

/// Each frame is foreign code that waits.
fn in_frames() -> impl Body<Data = Bytes, Error = Infallible> + Send {
    let frames = stream::iter(["pa", "id"]).then(async |data| {
        body().await;
        Ok(Frame::data(Bytes::from_static(data.as_bytes())))
    });
    StreamBody::new(Box::pin(frames))
}

async fn streaming_handler<B>(
    _: Request<B>,
) -> Answer<impl Body<Data = Bytes, Error = Infallible>> {
    Ok(Response::new(in_frames()))
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for world in WORLDS {
        for (kind, mode) in KINDS {
            rows.push(
                Row::new(
                    &["LockFuture", "LockService::call"],
                    kind,
                    move |play| async move {
                        let mut service = layer(&play).mode(mode).layer(service_fn(handler));
                        async move { drop(service.call(request()).await) }
                    },
                )
                .world(world),
            );
        }
        for row in [until_the_body_ends(), to_completion(), of_any_request()] {
            rows.push(row.world(world));
        }
    }
    rows.extend([
        rest_of_a_body(),
        key_of_a_body(),
        with_a_client(),
        lost(),
        extracted(),
    ]);
    rows
}

/// The hold goes from the future of the request to the body of its response.
fn until_the_body_ends() -> Row {
    let row = Row::new(
        &["LockFuture", "HoldBody"],
        LockKind::Reentrant,
        |play| async move {
            let layer = layer(&play).hold_until(HoldUntil::Body);
            let mut service = layer.layer(service_fn(streaming_handler));
            async move {
                let Ok(response) = service.call(request()).await;
                drop(response.into_body().collect().await);
            }
        },
    );
    row.also("until the body ends")
}

/// The future of the request has ended.
fn rest_of_a_body() -> Row {
    Row::new(&["HoldBody"], LockKind::Reentrant, |play| async move {
        let layer = layer(&play).hold_until(HoldUntil::Body);
        let mut service = layer.layer(service_fn(streaming_handler));
        let Ok(response) = service.call(request()).await;
        play.with_rivals().await;
        async move { drop(response.into_body().collect().await) }
    })
}

fn to_completion() -> Row {
    Row::new(
        &["CompletingFuture"],
        LockKind::Reentrant,
        |play| async move {
            let mut service = layer(&play).run_to_completion().layer(service_fn(handler));
            async move { drop(service.call(request()).await) }
        },
    )
}

fn of_any_request() -> Row {
    Row::new(
        &["ServiceLockFuture"],
        LockKind::Reentrant,
        |play| async move {
            let keys = play.keys();
            let layer = ServiceLockLayer::new(play.source(), move |_: &u64| keys.clone());
            let mut service = layer.wait(PATIENCE).layer(service_fn(async |_: u64| {
                body().await;
                Ok::<_, Infallible>(())
            }));
            async move { drop(service.call(42).await) }
        },
    )
}

/// The layer reads the body before it acquires, and the handler reads it again.
fn key_of_a_body() -> Row {
    Row::new(
        &["LockFuture", "key::KeyedBody"],
        LockKind::Reentrant,
        |play| async move {
            let keys = play.keys();
            let layer = LockLayer::new(play.source())
                .key_from_body(100, move |_, _| keys.clone())
                .wait(PATIENCE);
            let reading = async |request: Request<KeyedBody<_>>| -> Answer<Full<Bytes>> {
                drop(request.into_body().collect().await);
                handler(Request::new(())).await
            };
            let mut service = layer.layer(service_fn(reading));
            async move { drop(service.call(Request::new(in_frames())).await) }
        },
    )
    .also("whose key is in the body")
}

fn with_a_client() -> Row {
    Row::new(
        &["ClientFuture", "ClientService::call"],
        LockKind::Reentrant,
        |play: Rc<Play>| async move {
            let handler = async |key: String| guarded_by_the_current_client(key).await;
            let layer = ClientLayer::new(play.client().clone());
            let mut service = layer.layer(service_fn(handler));
            let key = play.key.clone();
            async move { drop(service.call(key).await) }
        },
    )
}

/// The handler waits until its lease ends.
fn lost() -> Row {
    Row::new(&["Held::lost"], LockKind::Reentrant, |play| async move {
        let waits = async |request: Request<Full<Bytes>>| -> Answer<Full<Bytes>> {
            let held = request.extensions().get::<Held>().unwrap().clone();
            held.lost().await;
            handler(request).await
        };
        let mut service = layer(&play).lease(SHORT).layer(service_fn(waits));
        async move { drop(service.call(request()).await) }
    })
}

fn extracted() -> Row {
    Row::new(
        &["Held::from_request_parts"],
        LockKind::Reentrant,
        |play| async move {
            let extracts = async |request: Request<Full<Bytes>>| -> Answer<Full<Bytes>> {
                let (mut parts, body) = request.into_parts();
                let held = Held::from_request_parts(&mut parts, &()).await.unwrap();
                assert!(current(held.key()).is_some());
                handler(Request::from_parts(parts, body)).await
            };
            let mut service = layer(&play).layer(service_fn(extracts));
            async move { drop(service.call(request()).await) }
        },
    )
}

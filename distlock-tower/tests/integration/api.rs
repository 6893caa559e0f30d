//! The traits that the public types implement, for all services and requests.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::key::{KeyedBody, WholeBody};
use distlock_tower::{
    BoxError, CompletingFuture, CompletingLayer, CompletingService, Held, HoldBody, HoldUntil,
    LockError, LockFuture, LockInfo, LockLayer, LockService, Reason, Rejection, ServiceLock,
    ServiceLockFuture, ServiceLockLayer, Template, TemplateError, Unkeyed,
};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::Answer;

fn is_value<T: Clone + Debug + Send + Sync + Unpin + 'static>() {}
fn is_send_and_debug<T: Debug + Send + 'static>(_: &T) {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}

/// A request that implements neither `Clone` nor `Debug`.
struct Job;

#[test]
fn layers_and_services_are_values_for_all_request_types() {
    is_value::<Unkeyed>();
    is_value::<LockLayer>();
    is_value::<LockLayer<WholeBody>>();
    is_value::<CompletingLayer>();
    is_value::<CompletingLayer<WholeBody>>();
    is_value::<ServiceLockLayer<Job>>();
    is_value::<LockService<()>>();
    is_value::<LockService<(), WholeBody>>();
    is_value::<CompletingService<()>>();
    is_value::<ServiceLock<(), Job>>();
}

#[test]
fn held_and_rejections_are_values_and_errors_implement_error() {
    is_value::<Held>();
    is_value::<HoldUntil>();
    is_value::<LockInfo>();
    is_value::<Reason>();
    is_value::<Rejection>();
    is_value::<Template>();
    is_error::<TemplateError>();
    is_error::<Rejection>();
    #[cfg(feature = "axum")]
    is_error::<distlock_tower::HeldRejection>();
    is_error::<LockError<Infallible>>();
    is_error::<LockError<BoxError>>();
}

#[test]
fn held_and_errors_are_unwind_safe() {
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_unwind_safe::<Held>();
    is_unwind_safe::<LockError<Infallible>>();
    is_unwind_safe::<Rejection>();
}

type Reply = Response<Full<Bytes>>;

fn futures_are_send<S, B>(_: &S)
where
    S: Service<Request<B>, Future: Send + 'static>,
    LockFuture<S, B>: Send + Debug + 'static,
{
}

#[test]
fn futures_and_bodies_are_send() {
    let handler = service_fn(async |_: Request<Full<Bytes>>| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Reply::default())
    });
    futures_are_send(&handler);
    fn send<T: Send + Debug + 'static>() {}
    send::<CompletingFuture<Reply, Infallible>>();
    send::<ServiceLockFuture<Reply, Infallible>>();
    send::<HoldBody<Full<Bytes>>>();
    is_send_and_debug(&HoldBody::<Full<Bytes>>::default());
}

/// Whether a future panics that is polled once more after its completion.
async fn panics_if_polled_again<F: Future>(future: F) -> bool {
    let mut future = Box::pin(future);
    future.as_mut().await;
    let again = AssertUnwindSafe(poll_fn(|cx| {
        Poll::Ready(future.as_mut().poll(cx).is_ready())
    }));
    again.catch_unwind().await.is_err()
}

#[tokio::test]
async fn every_future_that_is_polled_after_its_completion_panics() {
    let client = Client::in_memory();
    let layer = |key| LockLayer::new(&client).key(move |_: &Parts| key);
    let handler = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Reply::default()));
    let mut locked = layer("k").layer(handler);
    assert!(panics_if_polled_again(locked.call(Request::new(()))).await);
    let mut refused = layer("").layer(handler);
    assert!(panics_if_polled_again(refused.call(Request::new(()))).await);
    let mut unlocked = layer("k").when(|_| false).layer(handler);
    assert!(panics_if_polled_again(unlocked.call(Request::new(()))).await);
    let mut completing = layer("k").run_to_completion().layer(handler);
    assert!(panics_if_polled_again(completing.call(Request::new(()))).await);
    let job = service_fn(async |_: Job| Ok::<_, Infallible>(()));
    let mut jobs = ServiceLockLayer::new(&client, |_: &Job| "k").layer(job);
    assert!(panics_if_polled_again(jobs.call(Job)).await);
}

/// The layer requires no bounds of a service that it does not need.
#[tokio::test]
async fn services_and_bodies_need_not_be_send() {
    let client = Client::in_memory();
    let single_threaded = Rc::new("done");
    let handler = service_fn(|request: Request<Rc<str>>| {
        let answer = Rc::clone(&single_threaded);
        async move {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!(
                "{answer} {}",
                request.body()
            ))))
        }
    });
    let layer = LockLayer::new(&client).key(|_: &Parts| "k");
    let response = layer
        .layer(handler)
        .oneshot(Request::new(Rc::from("it")))
        .await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "done it");
}

#[tokio::test]
async fn key_from_body_works_with_run_to_completion() {
    let client = Client::in_memory();
    let layer = LockLayer::new(&client)
        .key_from_body(9, |_, body| String::from_utf8(body.to_vec()).ok())
        .run_to_completion();
    let handler = service_fn(async |_: Request<KeyedBody<Full<Bytes>>>| {
        let held = distlock::is_held("k").to_string();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(held)))
    });
    let response = layer
        .layer(handler)
        .oneshot(Request::new(Full::from("k")))
        .await;
    assert_eq!(Answer::of(response.unwrap()).await.text, "true");
}

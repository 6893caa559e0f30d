//! The traits that the public types implement, for all services and requests.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, poll_fn};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use distlock::Client;
use distlock_tower::key::{self, KeyedBody, WholeBody};
use distlock_tower::{
    BoxError, ClientFuture, ClientLayer, ClientService, CompletingFuture, CompletingLayer,
    CompletingService, Held, HoldBody, HoldUntil, LockError, LockFuture, LockInfo, LockKeys,
    LockLayer, LockService, Reason, Rejection, ServiceLock, ServiceLockFuture, ServiceLockLayer,
    Template, TemplateError, Unkeyed,
};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::Answer;

fn is_value<T: Clone + Debug + Send + Sync + Unpin + 'static>() {}
fn is_send_and_debug<T: Debug + Send + 'static>(_: &T) {}
fn is_sent<T: Debug + Send + 'static>() {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}

/// A request that implements neither `Clone` nor `Debug`.
struct Job;

/// Checks each type, and returns what it is called.
macro_rules! all {
    ($check:ident: $($ty:ty),+ $(,)?) => {{
        $($check::<$ty>();)+
        vec![$(stringify!($ty)),+]
    }};
}

type Handler = tower::util::BoxCloneSyncService<Request<()>, Reply, Infallible>;

/// The text of the API leaves auto traits out. It is read for the names, so that a type that is missing here fails.
#[test]
fn each_public_type_has_its_auto_traits() {
    let mut named = all! { is_value:
        ClientLayer, ClientService<()>, CompletingLayer, CompletingLayer<WholeBody>,
        CompletingService<()>, Held, HoldUntil, LockError<Infallible>, LockInfo, LockLayer,
        LockLayer<WholeBody>, LockService<()>, LockService<(), WholeBody>, Reason, Rejection,
        ServiceLock<(), Job>, ServiceLockLayer<Job>, Template, TemplateError, Unkeyed, key::Head,
        key::TemplateError, key::Template, WholeBody, key::WholeBody,
    };
    named.extend(all! { is_sent:
        ClientFuture<Ready<()>>, CompletingFuture<Reply, Infallible>, HoldBody<Full<Bytes>>,
        KeyedBody<Full<Bytes>>, key::KeyedBody<Full<Bytes>>, LockFuture<Handler, ()>,
        ServiceLockFuture<Reply, Infallible>,
    });
    fn is_kept<T: Send + 'static>() {}
    named.extend(all! { is_kept:
        LockKeys, key::LockKeys, key::ViaParts, key::ViaRequest, key::ViaTemplate,
    });
    #[cfg(feature = "axum")]
    named.extend(all! { is_value: distlock_tower::HeldRejection });
    #[cfg(feature = "console")]
    named.extend(all! { is_kept: distlock_tower::Console });
    let named: BTreeSet<_> = named.into_iter().map(name).collect();
    let text = include_str!("../../../tests/gates/checks/api/distlock_tower.txt");
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches("#[non_exhaustive] "));
    let types = lines.filter_map(|line| {
        let item = line
            .strip_prefix("pub struct ")
            .or_else(|| line.strip_prefix("pub enum "))?;
        item.starts_with("distlock_tower::").then(|| name(item))
    });
    let is_here = |ty: &&str| {
        (cfg!(feature = "axum") || *ty != "HeldRejection")
            && (cfg!(feature = "console") || *ty != "Console")
    };
    let missing: Vec<_> = types
        .filter(is_here)
        .filter(|ty| !named.contains(ty))
        .collect();
    assert!(missing.is_empty(), "not checked: {missing:?}");
}

/// The last part of the path of a type, without parameters.
fn name(ty: &str) -> &str {
    let end = ty.find(['<', '(', ' ']).unwrap_or(ty.len());
    let path = &ty[..end];
    path.rsplit("::").next().unwrap_or(path)
}

#[test]
fn errors_implement_error() {
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

//! The handler under the lock: one request of a key at a time, inside the section, and released before the response.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use distlock::Client;
use distlock_tower::{Held, LockLayer};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Text, by_path, locked, text, to};
use crate::support::{Answer, SEC, replicas};

#[tokio::test]
async fn locked_in_the_handler_and_free_when_the_response_is_returned() {
    let client = Client::in_memory();
    let seen = client.clone();
    let handler = service_fn(async |_: Request<()>| {
        assert!(locked(&seen, "k").await);
        Ok::<_, Infallible>(text("done"))
    });
    let response = by_path(&client).layer(handler).oneshot(to("/k")).await;
    assert!(!locked(&client, "k").await);
    assert_eq!(Answer::of(response.unwrap()).await.text, "done");
}

#[tokio::test]
async fn handler_error_is_passed_on_after_the_release() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| Err::<Response<Text>, _>("own"));
    let error = by_path(&client).layer(handler).oneshot(to("/k")).await;
    assert_eq!(error.err(), Some("own"));
    assert!(!locked(&client, "k").await);
}

#[tokio::test]
async fn any_body_type_works_and_the_handler_gets_the_whole_request() {
    struct Odd(std::rc::Rc<u8>); // neither `Send` nor a `Body`
    let handler = service_fn(async |request: Request<Odd>| {
        assert_eq!(request.headers()["x-a"], "1");
        assert_eq!(request.uri(), "/k?q=1");
        assert_eq!(request.extensions().get::<u8>(), Some(&7));
        let text = request.into_body().0.to_string();
        Ok::<_, Infallible>(Response::new(Text::from(text)))
    });
    let client = Client::in_memory();
    for layer in [
        by_path(&client),
        LockLayer::new(client.clone()).key(|request: &Request<()>| request.uri().path().to_owned()),
    ] {
        let mut request = Request::get("/k?q=1")
            .header("x-a", "1")
            .body(Odd(5.into()))
            .unwrap();
        request.extensions_mut().insert(7_u8);
        let response = layer.layer(handler).oneshot(request).await.unwrap();
        assert_eq!(format!("{:?}", response.body()), r#"HoldBody("Inner")"#);
        assert_eq!(Answer::of(response).await.text, "5");
    }
}

#[tokio::test]
async fn without_a_key_the_handler_runs_unlocked_if_the_layer_is_optional() {
    let client = Client::in_memory();
    let _guard = client.lock("k").acquire().await.unwrap();
    let handler = service_fn(async |request: Request<()>| {
        assert!(request.extensions().get::<Held>().is_none());
        Ok::<_, Infallible>(text("done"))
    });
    let layer = LockLayer::new(client.clone())
        .key(|parts: &Parts| parts.headers.contains_key("x-lock").then_some("k"))
        .optional();
    assert_eq!(
        layer
            .layer(handler)
            .oneshot(to("/k"))
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(distlock::test_util::sizes(&client).waiters, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_key_run_in_turn_and_others_concurrently() {
    let (one, two) = replicas();
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (inside, most) = (inside.clone(), most.clone());
        service_fn(move |_: Request<()>| {
            let (inside, most) = (inside.clone(), most.clone());
            async move {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(SEC).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(text("done"))
            }
        })
    };
    let since = tokio::time::Instant::now();
    let calls = |path: &'static str| {
        let services =
            [one.clone(), one.clone(), two.clone()].map(|c| by_path(&c).layer(handler.clone()));
        futures_util::future::join_all(services.map(|service| service.oneshot(to(path))))
    };
    calls("/k").await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(since.elapsed() >= 3 * SEC);
    tokio::join!(calls("/a"), calls("/b"));
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_service_and_of_the_layer_exclude_each_other() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| {
        tokio::time::sleep(SEC).await;
        Ok::<_, Infallible>(text("done"))
    });
    let layer = by_path(&client);
    let (one, two) = (layer.layer(handler), layer.clone().layer(handler));
    let three = one.clone();
    let since = tokio::time::Instant::now();
    let (a, b, c) = tokio::join!(
        one.oneshot(to("/k")),
        two.oneshot(to("/k")),
        three.oneshot(to("/k"))
    );
    assert!([a, b, c].iter().all(Result::is_ok));
    assert!(since.elapsed() >= 3 * SEC);
}

#[tokio::test(start_paused = true)]
async fn nested_acquire_across_awaits_of_the_handler_re_enters() {
    let client = Client::in_memory();
    let inner = client.clone();
    let handler = service_fn(async |_: Request<()>| {
        let lock = inner.lock("k");
        lock.acquire()
            .wait(Duration::ZERO)
            .run(async {})
            .await
            .unwrap();
        tokio::time::sleep(SEC).await;
        let again = lock.acquire().wait(Duration::ZERO).await.unwrap();
        assert_eq!(lock.hold_count().await.unwrap(), 3, "two layers and this");
        again.release().await.unwrap();
        Ok::<_, Infallible>(text("done"))
    });
    let service = by_path(&client).layer(by_path(&client).layer(handler));
    assert_eq!(service.oneshot(to("/k")).await.unwrap().status(), 200);
    assert!(!locked(&client, "k").await);
}

#[tokio::test]
async fn inner_call_itself_runs_inside_the_section() {
    #[derive(Clone)]
    struct Eager(Client);
    impl Service<Request<()>> for Eager {
        type Response = Response<Text>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Text>, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            let again = self.0.lock("k").try_acquire().now_or_never();
            assert!(again.unwrap().unwrap().is_some());
            ready(Ok(text("done")))
        }
    }
    let client = Client::in_memory();
    let response = by_path(&client)
        .layer(Eager(client.clone()))
        .oneshot(to("/k"))
        .await;
    assert_eq!(response.unwrap().status(), 200);
}

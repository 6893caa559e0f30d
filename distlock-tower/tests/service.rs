//! The layer around plain tower services: order of events, readiness, cancelling.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use distlock::Client;
use distlock_tower::{Held, LockLayer, LockService};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use support::{Answer, SEC, eventually, freed, replicas};
use tokio::sync::{Notify, mpsc};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

type Text = Full<bytes::Bytes>;

fn by_path(client: &Client) -> LockLayer {
    LockLayer::new(client.clone()).key(|parts: &Parts| parts.uri.path()[1..].to_owned())
}

fn to(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

fn text(text: &'static str) -> Response<Text> {
    Response::new(Full::from(text))
}

async fn locked(client: &Client, key: &str) -> bool {
    client.lock(key).is_locked().await.unwrap()
}

#[tokio::test]
async fn locked_in_the_handler_and_free_when_the_response_is_there() {
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
async fn any_body_and_no_axum_and_the_request_reaches_the_handler_whole() {
    struct Odd(std::rc::Rc<u8>); // neither Send nor a body
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

#[tokio::test(start_paused = true)]
async fn requests_of_one_key_run_one_after_the_other_and_others_beside_them() {
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

#[tokio::test(start_paused = true)]
async fn handler_is_dropped_inside_the_section_when_the_lease_ends() {
    let client = Client::in_memory();
    let dropped = Arc::new(AtomicBool::new(false));
    let handler = {
        let (client, dropped) = (client.clone(), dropped.clone());
        service_fn(move |_: Request<()>| {
            let probe = Probe {
                client: client.clone(),
                lost: true,
                dropped: dropped.clone(),
            };
            async move {
                let _probe = probe;
                pending::<Result<Response<Text>, Infallible>>().await
            }
        })
    };
    let since = tokio::time::Instant::now();
    let service = by_path(&client).lease(5 * SEC).layer(handler);
    let answer = Answer::of(service.oneshot(to("/k")).await.unwrap()).await;
    answer.is_problem("lost", 500, false);
    assert_eq!(answer.retry_after, None);
    assert!(dropped.load(Ordering::SeqCst));
    assert!((5 * SEC..6 * SEC).contains(&since.elapsed()));
}

/// Looks, when it is dropped, whether it is inside the section: an acquire there re-enters, or finds its hold lost,
/// where an ordinary one would find the lock held, or free.
struct Probe {
    client: Client,
    lost: bool,
    dropped: Arc<AtomicBool>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let again = self.client.lock("k").try_acquire().now_or_never();
        let within = match again {
            Some(Ok(Some(_))) => !self.lost,
            Some(Err(error)) => self.lost && error.is_lost(),
            _ => false,
        };
        self.dropped.store(within, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn force_released_under_the_handler_is_lost() {
    let server = distlock::MemoryServer::new();
    let client = Client::builder()
        .watchdog_timeout(3 * SEC)
        .in_memory(&server)
        .unwrap();
    let handler =
        service_fn(async |_: Request<()>| pending::<Result<Response<Text>, Infallible>>().await);
    let service = by_path(&client).layer(handler);
    let (response, _) = tokio::join!(service.oneshot(to("/k")), async {
        eventually("locked", async || locked(&client, "k").await).await;
        client.lock("k").force_release().await.unwrap()
    });
    Answer::of(response.unwrap())
        .await
        .is_problem("lost", 500, false);
}

#[tokio::test]
async fn loss_found_at_the_release_replaces_the_response_but_not_an_error() {
    let client = Client::in_memory();
    let (seen, seen_again) = (client.clone(), client.clone());
    let fine = service_fn(async |_: Request<()>| {
        seen.lock("secret").force_release().await.unwrap();
        Ok::<_, Infallible>(text("done"))
    });
    let response = by_path(&client).layer(fine).oneshot(to("/secret")).await;
    Answer::of(response.unwrap())
        .await
        .is_problem("lost", 500, false);

    let fails = service_fn(async |_: Request<()>| {
        seen_again.lock("secret").force_release().await.unwrap();
        Err::<Response<Text>, _>("own")
    });
    let error = by_path(&client).layer(fails).oneshot(to("/secret")).await;
    assert_eq!(error.err(), Some("own"));
}

#[tokio::test]
async fn dropped_while_the_handler_runs_drops_it_inside_the_section_and_releases() {
    let client = Client::in_memory();
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let left_behind = Arc::new(std::sync::Mutex::new(None::<Held>));
    let handler = {
        let (client, started, dropped) = (client.clone(), started.clone(), dropped.clone());
        let left_behind = left_behind.clone();
        service_fn(move |request: Request<()>| {
            *left_behind.lock().unwrap() = request.extensions().get().cloned();
            let probe = Probe {
                client: client.clone(),
                lost: false,
                dropped: dropped.clone(),
            };
            started.notify_one();
            async move {
                let _probe = probe;
                pending::<Result<Response<Text>, Infallible>>().await
            }
        })
    };
    let task = tokio::spawn(by_path(&client).layer(handler).oneshot(to("/k")));
    started.notified().await;
    let held = left_behind.lock().unwrap().take().unwrap();
    assert!(held.is_held() && locked(&client, "k").await);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(dropped.load(Ordering::SeqCst));
    assert!(!held.is_held() && held.keep().is_none());
    freed(&client, "k").await;
    eventually("nothing is left", async || {
        distlock::test_util::sizes(&client) == Default::default()
    })
    .await;
}

#[tokio::test]
async fn dropped_while_waiting_leaves_the_queue_and_the_handler_uncalled() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    let handler =
        service_fn(async |_: Request<()>| -> Result<Response<Text>, Infallible> { unreachable!() });
    let task = tokio::spawn(by_path(&client).layer(handler).oneshot(to("/k")));
    eventually("it waits", async || {
        distlock::test_util::sizes(&client).waiters == 1
    })
    .await;
    task.abort();
    assert!(task.await.is_err());
    assert_eq!(distlock::test_util::sizes(&client).waiters, 0);
    guard.release().await.unwrap();
    assert!(!locked(&client, "k").await);
}

#[tokio::test]
async fn panicking_handler_releases() {
    let client = Client::in_memory();
    let handler = service_fn(
        async |request: Request<()>| -> Result<Response<Text>, Infallible> {
            if request.uri() == "/k" {
                panic!("on purpose")
            }
            Ok(text("done"))
        },
    );
    let service = by_path(&client).layer(handler);
    let task = tokio::spawn(service.clone().oneshot(to("/k")));
    assert!(task.await.unwrap_err().is_panic());
    freed(&client, "k").await;
}

/// Ready for one call each time it was polled ready, as `Buffer` and `ConcurrencyLimit` are; a clone is not ready.
struct OncePerPoll {
    ready: bool,
    calls: mpsc::UnboundedSender<()>,
}

impl Clone for OncePerPoll {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<()>> for OncePerPoll {
    type Response = Response<Text>;
    type Error = BoxError;
    type Future = Ready<Result<Response<Text>, BoxError>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called when not ready");
        self.calls.send(()).unwrap();
        ready(Ok(text("done")))
    }
}

#[tokio::test]
async fn calls_the_inner_service_that_was_polled_ready() {
    let client = Client::in_memory();
    let (calls, mut called) = mpsc::unbounded_channel();
    let mut service = by_path(&client).layer(OncePerPoll {
        ready: false,
        calls,
    });
    for _ in 0..3 {
        service.ready().await.unwrap().call(to("/k")).await.unwrap();
        assert!(called.try_recv().is_ok());
    }
}

#[tokio::test]
async fn buffer_and_concurrency_limit_inside_and_outside() {
    let client = Client::in_memory();
    let (calls, _called) = mpsc::unbounded_channel();
    let service = ServiceBuilder::new()
        .buffer(4)
        .concurrency_limit(3)
        .layer(by_path(&client))
        .buffer(4)
        .concurrency_limit(1)
        .service(OncePerPoll {
            ready: false,
            calls,
        });
    let requests = (0..20).map(|n| service.clone().oneshot(to(["/a", "/b"][n % 2])));
    for response in futures_util::future::join_all(requests).await {
        assert_eq!(response.unwrap().status(), 200);
    }
    assert!(!locked(&client, "a").await && !locked(&client, "b").await);
}

#[tokio::test]
async fn waits_in_the_future_and_not_in_poll_ready() {
    let client = Client::in_memory();
    let _guard = client.lock("k").acquire().await.unwrap();
    let (calls, mut called) = mpsc::unbounded_channel();
    let mut service = by_path(&client).layer(OncePerPoll {
        ready: false,
        calls,
    });
    let waiting = tokio::spawn(service.ready().await.unwrap().call(to("/k")));
    eventually("it waits", async || {
        distlock::test_util::sizes(&client).waiters == 1
    })
    .await;
    service
        .ready()
        .await
        .unwrap()
        .call(to("/other"))
        .await
        .unwrap();
    assert!(called.try_recv().is_ok());
    client.lock("k").force_release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(called.try_recv().is_ok());
}

#[tokio::test]
async fn without_a_key_the_handler_runs_unlocked() {
    let client = Client::in_memory();
    let _guard = client.lock("k").acquire().await.unwrap();
    let handler = service_fn(async |request: Request<()>| {
        assert!(request.extensions().get::<Held>().is_none());
        Ok::<_, Infallible>(text("done"))
    });
    let layer = LockLayer::new(client.clone())
        .key(|parts: &Parts| parts.headers.contains_key("x-lock").then_some("k"));
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

#[tokio::test]
async fn kept_guard_outlives_the_response() {
    let client = Client::in_memory();
    let (send, mut kept) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        let held = request.extensions().get::<Held>().unwrap();
        send.send((held.keep().unwrap(), held.clone())).unwrap();
        assert!(held.is_held() && held.keep().is_none());
        Ok::<_, Infallible>(text("done"))
    });
    assert_eq!(
        by_path(&client)
            .layer(handler)
            .oneshot(to("/k"))
            .await
            .unwrap()
            .status(),
        200
    );
    let (guard, held) = kept.recv().await.unwrap();
    assert!(guard.is_held() && held.is_held() && locked(&client, "k").await);
    assert_eq!(
        (guard.key(), held.key(), held.keys()),
        ("k", "k", &["k".to_owned()][..])
    );
    guard.release().await.unwrap();
    held.lost().await;
    assert!(!held.is_held() && !locked(&client, "k").await);
}

#[tokio::test]
async fn view_kept_by_the_handler_does_not_stop_the_release() {
    let client = Client::in_memory();
    let (send, mut kept) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        send.send(request.extensions().get::<Held>().cloned().unwrap())
            .unwrap();
        Ok::<_, Infallible>(text("done"))
    });
    let service = by_path(&client).layer(handler);
    service.clone().oneshot(to("/k")).await.unwrap();
    let held = kept.recv().await.unwrap();
    assert!(!locked(&client, "k").await);
    assert!(!held.is_held() && held.keep().is_none());
    held.lost().await;
    // The key's next holder is none of its business.
    let _next = client.lock("k").acquire().await.unwrap();
    assert!(!held.is_held());
}

#[tokio::test(start_paused = true)]
async fn view_tells_a_spawned_task_of_the_loss() {
    let client = Client::in_memory();
    let (send, mut told) = mpsc::unbounded_channel();
    let handler = service_fn(async |request: Request<()>| {
        let (held, send) = (
            request.extensions().get::<Held>().cloned().unwrap(),
            send.clone(),
        );
        tokio::spawn(async move {
            held.lost().await;
            send.send(held.is_held())
        });
        pending::<Result<Response<Text>, Infallible>>().await
    });
    let service = by_path(&client).lease(5 * SEC).layer(handler);
    assert_eq!(service.oneshot(to("/k")).await.unwrap().status(), 500);
    assert_eq!(told.recv().await, Some(false));
}

#[test]
fn everything_is_send_and_more() {
    fn all<T: Send + Sync + Unpin + Clone + std::fmt::Debug + 'static>(_: T) {}
    fn send<T: Send + 'static>(_: &T) {}
    let client = Client::in_memory();
    all(LockLayer::new(client.clone()));
    let layer = by_path(&client);
    all(layer.clone());
    let mut service: LockService<OncePerPoll> = layer.layer(OncePerPoll {
        ready: true,
        calls: mpsc::unbounded_channel().0,
    });
    let future = service.call(to("/k"));
    send(&future);
    assert_eq!(format!("{future:?}"), r#"LockFuture("Entering")"#);
    fn held<T: Send + Sync + Unpin + Clone + 'static>() {}
    held::<Held>();
    held::<LockService<()>>();
}

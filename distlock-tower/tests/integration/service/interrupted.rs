//! Requests that do not complete: the lock is lost, the future is dropped, or the handler panics.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock::Client;
use distlock_tower::Held;
use futures_util::FutureExt as _;
use http::{Request, Response};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt, service_fn};

use super::{Text, by_path, locked, text, to};
use crate::support::{Answer, SEC, eventually, freed};

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

/// Notes whether it is dropped inside the section. An acquisition there re-enters the hold, or reports it lost. Outside, an
/// acquisition would find the lock held by another owner, or free.
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
async fn lock_force_released_while_the_handler_runs_is_lost() {
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
async fn future_dropped_while_the_handler_runs_drops_it_inside_the_section() {
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
async fn future_dropped_while_waiting_leaves_the_queue() {
    let client = Client::in_memory();
    let guard = client.lock("k").acquire().await.unwrap();
    let handler =
        service_fn(async |_: Request<()>| -> Result<Response<Text>, Infallible> { unreachable!() });
    let task = tokio::spawn(by_path(&client).layer(handler).oneshot(to("/k")));
    eventually("the request waits", async || {
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
async fn panic_of_the_handler_releases_the_lock() {
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

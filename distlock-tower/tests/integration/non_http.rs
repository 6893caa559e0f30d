//! `ServiceLockLayer`: the layer for services of any request type.

use std::time::Duration;

use distlock::test_util::sizes;
use distlock::{Client, MemoryServer, Mode};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{LockError, ServiceLockLayer};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{SEC, eventually, freed, http_client};

/// Implements neither `Clone` nor `Debug`: the layer does not require them of a request.
struct Job(&'static str);

fn layer(client: &Client) -> ServiceLockLayer<Job> {
    ServiceLockLayer::new(client, |job: &Job| job.0).wait(Duration::ZERO)
}

type Refused = LockError<&'static str>;

fn lock_error(result: Result<u32, Refused>) -> distlock::Error {
    match result {
        Err(LockError::Lock(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn request_runs_under_the_lock_and_releases_it() {
    let client = Client::in_memory();
    let inner = client.clone();
    let service = layer(&client).layer(service_fn(move |job: Job| {
        let client = inner.clone();
        async move {
            assert!(distlock::is_held("a"));
            let again = client.lock(job.0).try_acquire().await.unwrap();
            assert!(again.is_some());
            Ok::<u32, &str>(1)
        }
    }));
    assert_eq!(service.clone().oneshot(Job("a")).await.unwrap(), 1);
    assert!(!client.lock("a").is_locked().await.unwrap());
    assert!(format!("{service:?}").starts_with("ServiceLock"));
}

#[tokio::test]
async fn inner_error_is_passed_on_after_the_release() {
    let client = Client::in_memory();
    let service = layer(&client).layer(service_fn(async |_: Job| Err::<u32, _>("no")));
    let error = service.oneshot(Job("a")).await.unwrap_err();
    assert!(matches!(error, LockError::Inner("no")), "{error:?}");
    assert!(!client.lock("a").is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn refusals_are_errors_and_the_service_is_not_called() {
    let client = Client::in_memory();
    let _taken = client.lock("a").acquire().await.unwrap();
    let refused = async |layer: ServiceLockLayer<Job>, job: &'static str| {
        let never = service_fn(async |_: Job| -> Result<u32, &str> { unreachable!("refused") });
        layer.layer(never).oneshot(Job(job)).await
    };
    assert!(lock_error(refused(layer(&client), "a").await).is_busy());
    let limited = layer(&client).wait(SEC).max_waiters(0);
    assert!(lock_error(refused(limited, "a").await).is_overloaded());
    let limited = layer(&client).wait(SEC).max_pending_requests(0);
    let too_many = refused(limited, "a").await.unwrap_err();
    assert!(
        matches!(&too_many, LockError::TooManyPending { limit: 0, busy, .. } if busy.is_busy()),
        "{too_many:?}"
    );
    let since = tokio::time::Instant::now();
    let patient = layer(&client).wait(3 * SEC);
    assert!(lock_error(refused(patient, "a").await).is_busy());
    assert!(since.elapsed() >= 3 * SEC);
    let two_tokens = ServiceLockLayer::new(&client, |_: &Job| ["b", "c"]).mode(Mode::Fenced);
    assert!(lock_error(refused(two_tokens, "b").await).is_permanent());

    let faults = Faults::new();
    faults.always(Op::Attempt, Fault::FailBefore);
    let builder = Client::builder().faults(&faults);
    let down = builder.in_memory(&MemoryServer::new()).unwrap();
    assert!(lock_error(refused(layer(&down), "b").await).is_unavailable());

    for keys in [vec![], vec![""], vec!["a\n"]] {
        let layer = ServiceLockLayer::new(&client, move |_: &Job| keys.clone());
        let refused = refused(layer, "b").await;
        assert!(matches!(refused, Err(LockError::Keys(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn loss_drops_the_inner_future() {
    let client = Client::in_memory();
    let stuck = service_fn(async |_: Job| std::future::pending::<Result<u32, &str>>().await);
    let leased = layer(&client).lease(SEC).layer(stuck).oneshot(Job("a"));
    let bounded = layer(&client).max_hold(SEC).layer(stuck).oneshot(Job("b"));
    for service in [leased, bounded] {
        let ended = tokio::time::timeout(5 * SEC, service).await.unwrap();
        assert!(lock_error(ended).is_lost());
    }
}

#[tokio::test]
async fn loss_found_at_the_release_replaces_the_response_but_not_an_error() {
    let client = Client::in_memory();
    let inner = client.clone();
    let service = layer(&client).layer(service_fn(move |job: Job| {
        let client = inner.clone();
        async move {
            client.lock(job.0).force_release().await.unwrap();
            if job.0 == "bad" { Err("no") } else { Ok(1) }
        }
    }));
    let lost = lock_error(service.clone().oneshot(Job("a")).await);
    assert!(lost.is_lost() && lost.body_completed(), "{lost:?}");
    let error = service.oneshot(Job("bad")).await.unwrap_err();
    assert!(matches!(error, LockError::Inner("no")), "{error:?}");
}

#[tokio::test]
async fn without_a_key_fails_or_runs_unlocked_and_with_several_holds_all() {
    let client = Client::in_memory();
    let _taken = client.lock("a").acquire().await.unwrap();
    let keyless = || ServiceLockLayer::new(&client, |_: &Job| None::<String>);
    let never = service_fn(async |_: Job| -> Result<u32, &str> { unreachable!("no key") });
    let error = keyless().layer(never).oneshot(Job("a")).await.unwrap_err();
    assert!(matches!(&error, LockError::Keys(why) if why.contains("found no lock key")));
    let service = keyless().optional().layer(service_fn(async |_: Job| {
        Ok::<_, &str>(u32::from(distlock::is_held("a")))
    }));
    assert_eq!(service.oneshot(Job("a")).await.unwrap(), 0);
    let both = ServiceLockLayer::new(&client, |_: &Job| ["b", "c"]).mode(Mode::Write);
    let service = both.layer(service_fn(async |_: Job| {
        Ok::<_, &str>(u32::from(distlock::is_held("b") && distlock::is_held("c")))
    }));
    assert_eq!(service.oneshot(Job("a")).await.unwrap(), 1);
}

#[tokio::test]
async fn request_dropped_while_waiting_leaves_the_queue() {
    let client = Client::in_memory();
    let taken = client.lock("a").acquire().await.unwrap();
    let never = service_fn(async |_: Job| -> Result<u32, &str> { unreachable!("dropped") });
    let service = layer(&client).wait(60 * SEC).layer(never);
    let waiting = tokio::spawn(service.oneshot(Job("a")));
    eventually("the request waits", async || sizes(&client).waiters == 1).await;
    waiting.abort();
    eventually("no request waits", async || sizes(&client).waiters == 0).await;
    taken.release().await.unwrap();
    freed(&client, "a").await;
}

#[tokio::test]
async fn works_inside_and_outside_buffer_timeout_and_concurrency_limit() {
    let client = Client::in_memory();
    let service = ServiceBuilder::new()
        .buffer(8)
        .concurrency_limit(4)
        .timeout(60 * SEC)
        .layer(layer(&client).wait(60 * SEC))
        .buffer(8)
        .concurrency_limit(1)
        .timeout(60 * SEC)
        .service(service_fn(async |job: Job| {
            assert!(distlock::is_held(job.0));
            Ok::<u32, std::convert::Infallible>(1)
        }));
    let jobs = (0..20).map(|n| service.clone().oneshot(Job(["a", "b"][n % 2])));
    for done in futures_util::future::join_all(jobs).await {
        assert_eq!(done.unwrap(), 1);
    }
}

#[tokio::test]
async fn locks_for_requests_of_another_type_such_as_reqwest() {
    let client = Client::in_memory();
    let layer = ServiceLockLayer::new(&client, |request: &reqwest::Request| {
        request.url().path().to_owned()
    });
    let http = layer.wait(Duration::ZERO).layer(http_client());
    let request =
        || reqwest::Request::new(reqwest::Method::GET, "http://[::1]:1/a".parse().unwrap());
    let taken = client.lock("/a").acquire().await.unwrap();
    let busy = http.clone().oneshot(request()).await.unwrap_err();
    assert!(matches!(busy, LockError::Lock(error) if error.is_busy()));
    taken.release().await.unwrap();
    let sent = http.oneshot(request()).await.unwrap_err();
    assert!(matches!(sent, LockError::Inner(error) if error.is_connect()));
}

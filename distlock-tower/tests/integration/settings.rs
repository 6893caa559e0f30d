//! Settings that cannot work are refused where the layer is made, and the time for which a key stays taken.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use distlock::{Client, MemoryServer, Mode, Quorum};
use distlock_tower::{LockError, LockLayer, ServiceLockLayer};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Answer, SEC};

const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

fn http(client: &Client) -> LockLayer {
    LockLayer::new(client).key(|_: &Parts| "k")
}

fn jobs(client: &Client) -> ServiceLockLayer<u32> {
    ServiceLockLayer::new(client, |_: &u32| "k")
}

/// What the panic says with which a layer was not made.
fn refusal<T>(making: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(making)).err();
    let panic = panic.expect("the layer was made");
    let formatted = panic.downcast_ref::<String>().cloned();
    formatted.unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

#[test]
fn each_setting_of_a_layer_without_a_key_says_what_is_missing() {
    let without_a_key = include_str!("../../src/layer/no_key.rs");
    let settings = [
        include_str!("../../src/layer/mod.rs"),
        include_str!("../../src/layer/setters.rs"),
        include_str!("../../src/lock_setters.rs"),
    ];
    let methods = settings
        .iter()
        .flat_map(|file| file.split("pub fn ").skip(1));
    let setters: Vec<_> = methods
        .filter_map(|method| {
            let (head, _) = method.split_once(')')?;
            let name = head.split(['(', '<']).next()?;
            head.contains("self").then_some(name)
        })
        .collect();
    assert!(setters.len() > 15, "{setters:?}");
    for name in setters {
        let explained = without_a_key.contains(&format!("    {name}("));
        assert!(explained, "`{name}` before the key is an unknown method");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_where_the_layer_is_made() {
    let client = Client::in_memory();
    let servers = || {
        Quorum::new([
            Client::in_memory(),
            Client::in_memory(),
            Client::in_memory(),
        ])
    };
    let red = || LockLayer::new(servers()).key(|_: &Parts| "k");
    let red_jobs = || ServiceLockLayer::new(servers(), |_: &u32| "k");
    let short = Duration::from_micros(500);
    let bounded = Client::builder().max_hold(SEC);
    let bounded = bounded.in_memory(&MemoryServer::new()).unwrap();
    let said = [
        ("lease", refusal(|| http(&client).lease(short))),
        ("lease", refusal(|| jobs(&client).lease(Duration::MAX))),
        ("wait", refusal(|| http(&client).wait(2 * YEAR))),
        ("wait", refusal(|| jobs(&client).wait(2 * YEAR))),
        ("max_hold", refusal(|| http(&client).max_hold(short))),
        ("max_hold", refusal(|| jobs(&client).max_hold(short))),
        ("fair", refusal(|| red().mode(Mode::Fair))),
        ("fencing token", refusal(|| red_jobs().mode(Mode::Fenced))),
        (
            "hold_at_least",
            refusal(|| http(&client).hold_at_least(short)),
        ),
        (
            "hold_at_least",
            refusal(|| jobs(&client).lease(SEC).hold_at_least(2 * SEC)),
        ),
        (
            "hold_at_least",
            refusal(|| http(&client).hold_at_least(2 * SEC).max_hold(SEC)),
        ),
        (
            "hold_at_least",
            refusal(|| http(&bounded).hold_at_least(2 * SEC)),
        ),
        (
            "hold_at_least",
            refusal(|| http(&client).read_write().hold_at_least(SEC)),
        ),
        (
            "hold_at_least",
            refusal(|| jobs(&client).hold_at_least(SEC).mode(Mode::Fair)),
        ),
        (
            "request_body_timeout",
            refusal(|| http(&client).request_body_timeout(Duration::ZERO)),
        ),
    ];
    for (setting, said) in said {
        assert!(said.contains(setting), "{setting}: {said}");
    }
}

#[test]
fn bounds_of_settings_are_taken() {
    let client = Client::in_memory();
    let layer = http(&client)
        .wait(Duration::MAX)
        .max_hold(Duration::MAX)
        .hold_at_least(Duration::ZERO)
        .request_body_timeout(Duration::MAX)
        .mode(Mode::Fair);
    drop(layer.read_write().wait(Duration::ZERO));
    drop(jobs(&client).hold_at_least(SEC).lease(SEC).max_hold(SEC));
}

#[tokio::test(start_paused = true)]
async fn key_stays_taken_for_hold_at_least_after_a_request_that_is_done() {
    let client = Client::in_memory();
    let handler = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    });
    let service = http(&client).wait(Duration::ZERO).hold_at_least(SEC);
    let service = service.layer(handler);
    let ask = async || Answer::of(service.clone().oneshot(Request::new(())).await.unwrap()).await;
    assert_eq!(ask().await.text, "done");
    ask().await.is_problem("busy", 409, true);
    tokio::time::sleep(SEC).await;
    assert_eq!(ask().await.text, "done");
}

#[tokio::test(start_paused = true)]
async fn key_of_a_job_stays_taken_for_hold_at_least() {
    let client = Client::in_memory();
    let job = service_fn(async |job: u32| Ok::<_, Infallible>(job));
    let service = jobs(&client)
        .wait(Duration::ZERO)
        .hold_at_least(SEC)
        .layer(job);
    assert_eq!(service.clone().oneshot(1).await.unwrap(), 1);
    let refused = service.clone().oneshot(2).await.unwrap_err();
    assert!(matches!(refused, LockError::Lock(busy) if busy.is_held_by_another()));
    tokio::time::sleep(SEC).await;
    assert_eq!(service.oneshot(3).await.unwrap(), 3);
}

//! Runs each small example in memory and on Redis, checks what it prints, and checks that it leaves no lock in Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Output;
use std::time::Duration;

use distlock_tests::server::free_port;
use distlock_tests::{Process, RedisServer, eventually};
use serde_json::Value;
use tokio::process::Command;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Runs an example both ways. Both runs must succeed and print `what`.
async fn shows(program: &str, what: &str) {
    let alone = Command::new(program).output().await.unwrap();
    assert_says(&alone, what);

    let server = RedisServer::start().await;
    let shared = Command::new(program)
        .args(["--redis", &server.url()])
        .output()
        .await
        .unwrap();
    assert_says(&shared, what);
    let locks = server.keys().await;
    let left = locks.iter().filter(|key| !may_stay(key));
    assert_eq!(left.count(), 0, "{locks:?}");
    assert!(
        server.command_calls("evalsha").await > 0,
        "the example did not use locks in Redis"
    );
}

/// The nightly job keeps its key on purpose, and the last token of a fenced lock stays.
fn may_stay(key: &str) -> bool {
    key.ends_with("job:nightly-report") || key.starts_with("redisson_lock_token")
}

fn assert_says(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(what),
        "{said}\n{log}"
    );
}

#[tokio::test]
async fn attribute() {
    let program = env!("CARGO_BIN_EXE_attribute");
    shows(program, "no money was lost or made").await;
}

#[tokio::test]
async fn annotated_handlers() {
    let program = env!("CARGO_BIN_EXE_annotated_handlers");
    shows(program, "/orders/42/cancel: 200 OK order 42 is cancelled").await;
}

#[tokio::test]
async fn multi_lock() {
    let program = env!("CARGO_BIN_EXE_multi_lock");
    shows(program, "12 orders were picked").await;
}

#[tokio::test]
async fn nightly_job() {
    let program = env!("CARGO_BIN_EXE_nightly_job");
    shows(program, "the next run can start in").await;
}

#[tokio::test]
async fn fenced_writer() {
    let program = env!("CARGO_BIN_EXE_fenced_writer");
    shows(program, "the store refused the stale token").await;
}

#[tokio::test]
async fn layer() {
    let program = env!("CARGO_BIN_EXE_layer");
    shows(program, "20 payments were counted").await;
}

#[tokio::test]
async fn graceful_shutdown() {
    let program = env!("CARGO_BIN_EXE_graceful_shutdown");
    shows(program, "no lock is left behind").await;
}

#[tokio::test]
async fn order_service_with_traffic_shows_busy_locks_on_its_console_and_exports_metrics() {
    let program = env!("CARGO_BIN_EXE_order_service");
    let metrics = format!("127.0.0.1:{}", free_port());
    let args = ["--serve", "127.0.0.1:0", "--traffic", "--metrics", &metrics];
    let mut service = Process::start(program, args);
    let console = loop {
        let line = service.line(SOON).await;
        if let Some(console) = line.strip_suffix(" shows the locks in a browser") {
            break console.to_owned();
        }
    };
    eventually(SOON, "holders and waiters on the console", || async {
        let seen = reqwest::get(format!("{console}/api/locks")).await.unwrap();
        let seen: Value = seen.json().await.unwrap();
        let locks = seen["locks"].as_array().unwrap().iter();
        let mut waited_for = locks.filter(|lock| lock["waiting"].as_u64() > Some(0));
        // The lines of the code that waits are there as well.
        let waits = seen["own"]["waits"].as_array().unwrap().iter();
        let mut lines = waits.filter_map(|wait| wait["place"].as_str());
        let is_busy = waited_for.next().is_some() && lines.any(|line| line.contains("traffic.rs:"));
        is_busy.then_some(()).ok_or(seen)
    })
    .await;
    eventually(SOON, "metrics of granted locks", || async {
        let text = reqwest::get(format!("http://{metrics}/metrics"))
            .await
            .unwrap();
        let text = text.text().await.unwrap();
        // They are there from the start, and count only if locks do.
        let is_counted = |name: &str| {
            let lines = text.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            values.any(|value: f64| value > 0.0)
        };
        let is_told = text.contains("distlock_holds{kind=\"fair\"}")
            && is_counted("distlock_acquisitions_total{kind=\"reentrant\",outcome=\"granted\"}")
            && is_counted("distlock_hold_seconds_bucket{kind=\"reentrant\",le=\"5\"}");
        is_told.then_some(()).ok_or(text)
    })
    .await;
}

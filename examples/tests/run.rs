//! Runs each small example in memory and on Redis, checks what it prints, and checks that it leaves no lock in Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Output;

use distlock_tests::RedisServer;
use tokio::process::Command;

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
async fn computed_once() {
    let program = env!("CARGO_BIN_EXE_computed_once");
    shows(
        program,
        "300 requests of 3 replicas got the report, which was computed once",
    )
    .await;
}

#[tokio::test]
async fn leader() {
    let program = env!("CARGO_BIN_EXE_leader");
    shows(program, "each replica has led, one after the other").await;
}

//! Runs the example in memory and on Redis: both export metrics and spans.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use distlock_tests::server::{free_port, loopback};
use distlock_tests::{Process, RedisServer, eventually};
use tokio::process::Command;

async fn exports(args: &[&str]) {
    let address = loopback(free_port()).to_string();
    let run = Command::new(env!("CARGO_BIN_EXE_observability"))
        .args(["--metrics", &address])
        .args(args)
        .output();
    let output = run.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{log}");
    let granted = said.lines().find(|line| {
        line.starts_with("distlock_acquisitions_total{")
            && line.contains("outcome=\"granted\"")
            && line.contains("key_class=\"order\"")
    });
    let granted = granted.unwrap_or_else(|| panic!("no metrics:\n{said}"));
    let count: u64 = granted.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count >= 10, "{granted}");
    // Each acquisition is a span inside that of the function that acquires.
    for part in [
        "distlock.acquire",
        "serve_order",
        "outcome",
        "health: ready",
    ] {
        assert!(said.contains(part), "no {part}:\n{said}");
    }
}

#[tokio::test]
async fn example_exports_metrics_and_spans_in_memory_and_on_redis() {
    exports(&[]).await;
    let server = RedisServer::start().await;
    exports(&["--redis", &server.url()]).await;
    assert!(server.command_calls("evalsha").await > 0);
}

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[cfg(unix)]
#[tokio::test]
async fn example_that_is_told_to_end_by_sigterm_leaves_no_lock() {
    let server = RedisServer::start().await;
    let metrics = loopback(free_port()).to_string();
    let url = server.url();
    let args = ["--redis", &url, "--metrics", &metrics, "--seconds", "600"];
    let mut service = Process::start(env!("CARGO_BIN_EXE_observability"), args);
    // It writes many spans, and would wait for a reader.
    let mut spans = service.take_output();
    tokio::spawn(async move { while let Ok(Some(_)) = spans.next_line().await {} });
    let locks = async || {
        let mut keys = server.keys().await;
        keys.retain(|key| key.starts_with("order:"));
        keys
    };
    eventually(SOON, "locks in Redis", || async {
        let held = locks().await;
        (!held.is_empty()).then_some(()).ok_or(held)
    })
    .await;
    service.terminate();
    assert!(service.wait(SOON).await.success(), "{}", service.stderr());
    assert_eq!(locks().await, [""; 0]);
}

#[tokio::test]
async fn hold_that_the_server_has_lost_is_in_the_log() {
    let server = RedisServer::start().await;
    let metrics = loopback(free_port()).to_string();
    let url = server.url();
    let args = ["--redis", &url, "--metrics", &metrics, "--seconds", "600"];
    let mut service = Process::start(env!("CARGO_BIN_EXE_observability"), args);
    // It writes many spans, and would wait for a reader.
    let mut spans = service.take_output();
    tokio::spawn(async move { while let Ok(Some(_)) = spans.next_line().await {} });
    // Most of the time each of the keys is held.
    eventually(SOON, "a loss in the log", || async {
        server.cli(&["DEL", "order:0", "order:1", "order:2"]).await;
        let log = service.stderr();
        log.contains("found lost by its release")
            .then_some(())
            .ok_or(log)
    })
    .await;
}

#[tokio::test]
async fn error_that_comes_at_once_is_not_repeated_without_a_pause() {
    let server = RedisServer::start().await;
    for key in ["order:0", "order:1", "order:2"] {
        server.cli(&["SET", key, "data of another program"]).await;
    }
    let metrics = loopback(free_port()).to_string();
    let url = server.url();
    let run = Command::new(env!("CARGO_BIN_EXE_observability"))
        .args(["--redis", &url, "--metrics", &metrics, "--seconds", "1"])
        .output();
    let output = run.await.unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    let failures = log.matches("an order was not served").count();
    // Ten tasks, each of which pauses for half a second. Without a pause there are thousands.
    assert!((10..200).contains(&failures), "{failures}");
}

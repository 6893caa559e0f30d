//! Signals to `distlock run`.

use std::time::Instant;

use distlock_tests::{Flow, Proxy, Select, Way, eventually};
use serde_json::Value;

use super::*;

#[tokio::test]
async fn signal_ends_the_wait_for_a_server_that_does_not_answer_the_release() {
    let mut server = RedisServer::start().await;
    let patient = ["--lease", "10m", "--response-timeout", "1m", "--json"];
    let script = [
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo running; read line; echo over; exit 3",
    ];
    let mut run = start(&server, &[&["run", "job"], &patient[..], &script].concat());
    run.expect("running", SOON).await;
    server.stop();
    run.send("end");
    run.expect("over", SOON).await;
    let since = Instant::now();
    let ended = loop {
        // A signal that comes while the command ends is the command's.
        run.terminate();
        if let Some(ended) = run.exited() {
            break ended;
        }
        assert!(since.elapsed() < SOON, "it waits: {}", run.stderr());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(ended.code(), Some(3));
    let said: serde_json::Value = serde_json::from_str(run.stderr().trim()).unwrap();
    assert_eq!(said["released"], false, "{said:#}");
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("signal 15") && message.contains("10m"),
        "{message}"
    );
}

#[tokio::test]
async fn signals_to_the_program_reach_the_command_and_its_status_is_passed_back() {
    let server = RedisServer::start().await;
    for (name, sent) in [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
    ] {
        let script =
            format!("trap 'echo got; exit 42' {name}; echo running; while :; do sleep 0.02; done");
        let mut run = start(&server, &["run", "job", "--", "sh", "-c", &script]);
        run.expect("running", SOON).await;
        signal(&run, sent);
        run.expect("got", SOON).await;
        assert_eq!(run.wait(SOON).await.code(), Some(42), "{name}");
        assert!(server.keys().await.is_empty(), "{name}");
    }
    let mut run = start(
        &server,
        &["run", "job", "--json", "--", "sh", "-c", UNTIL_TOLD],
    );
    run.expect("running", SOON).await;
    signal(&run, Signal::TERM);
    assert_eq!(run.wait(SOON).await.code(), Some(128 + 15));
    let said: Value = serde_json::from_str(&run.stderr()).unwrap();
    assert_eq!(
        (&said["outcome"], &said["signal"]),
        (&"signalled".into(), &15.into())
    );
}

#[tokio::test]
async fn signal_while_the_program_waits_ends_the_wait_and_leaves_nothing() {
    let server = RedisServer::start().await;
    let mut holder = start(&server, &["run", "job", "--", "sh", "-c", UNTIL_TOLD]);
    holder.expect("running", SOON).await;
    let mut waiting = start(
        &server,
        &["run", "job", "--kind", "fair", "--", "echo", "started"],
    );
    eventually(SOON, "a place in the queue", || {
        has_key(&server, "redisson_lock_queue:{job}")
    })
    .await;
    signal(&waiting, Signal::TERM);
    assert_eq!(waiting.wait(SOON).await.code(), Some(128 + 15));
    assert_eq!(server.keys().await, ["job"]);
}

/// The kernel drops a signal that the first process of a container does not handle.
#[tokio::test]
async fn signal_while_the_program_connects_is_handled_and_the_command_is_not_started() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let silent = proxy.flow(Select::ALL, Way::Down, Flow::Stall);
    let url = proxy.url();
    let args = ["--url", &url, "--connect-timeout", "10m", "--json"];
    let run = ["run", "job", "--", "echo", "started"];
    let mut run = Process::start(PROGRAM, [&args[..], &run].concat());
    eventually(SOON, "it connects", || async { silent.hits() > 0 }).await;
    signal(&run, Signal::TERM);
    assert_eq!(run.wait(SOON).await.code(), Some(128 + 15));
    let said: Value = serde_json::from_str(&run.stderr()).unwrap();
    assert_eq!(
        (&said["outcome"], &said["signal"], &said["status"]),
        (&"interrupted".into(), &15.into(), &143.into())
    );
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("connected"), "{message}");
}

#[tokio::test]
async fn ignored_signal_stays_ignored() {
    let server = RedisServer::start().await;
    let script = format!(
        "trap '' HUP; exec '{PROGRAM}' --url {} run job -- sh -c '{UNTIL_TOLD}'",
        server.url()
    );
    let mut run = Process::start("sh", ["-c", &script]);
    run.expect("running", SOON).await;
    signal(&run, Signal::HUP);
    run.ask("go", "got go", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(7));
}

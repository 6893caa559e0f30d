//! Child programs: lines in and out, signals, and an end in every case.

use std::time::Duration;

use distlock_tests::Process;
use tokio::net::TcpStream;

use super::{BRIEF, SOON, panics};

fn shell(script: &str) -> Process {
    Process::start("sh", ["-c", script])
}

#[tokio::test]
async fn lines_go_in_and_come_out() {
    let mut process = shell("while read -r line; do echo \"got $line\"; done; exit 3");
    process.send("one");
    assert_eq!(process.line(SOON).await, "got one");
    process.send(2);
    assert_eq!(process.line(SOON).await, "got 2");
    process.close_input();
    assert_eq!(process.wait(SOON).await.code(), Some(3));
}

#[tokio::test]
async fn json_is_read_and_anything_else_refused() {
    let mut process = shell("echo why >&2; echo '{\"token\": 7}'; echo nonsense; read -r _");
    assert_eq!(process.json(SOON).await["token"], 7);
    let text = panics(async move { process.json(SOON).await }).await;
    assert!(text.contains("nonsense") && text.contains("why"), "{text}");
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let mut process = shell("read -r _");
    let text = panics(async move { process.line(BRIEF).await }).await;
    assert!(text.contains("no line within 100ms"), "{text}");
}

#[tokio::test]
async fn stopped_process_says_nothing_until_it_continues() {
    let mut process = shell("while read -r line; do echo $line; done");
    process.send("before");
    assert_eq!(process.line(SOON).await, "before");
    for round in 0..3 {
        process.stop();
        process.send(round);
        let silence = tokio::time::timeout(BRIEF, process.line(SOON)).await;
        assert!(silence.is_err());
        process.cont();
        assert_eq!(process.line(SOON).await, round.to_string());
    }
}

#[tokio::test]
async fn killed_process_leaves_the_lines_it_wrote() {
    let mut process = shell("printf 'first\\nlast\\n'; read -r _");
    assert_eq!(process.line(SOON).await, "first");
    process.stop();
    process.kill();
    assert!(!process.wait(Duration::ZERO).await.success());
    assert_eq!(process.line(SOON).await, "last");
    let text = panics(async move { process.line(SOON).await }).await;
    assert!(text.contains("its output has ended"), "{text}");
}

#[tokio::test]
async fn dropped_process_is_gone() {
    let mut process = Process::start(env!("CARGO_BIN_EXE_orphan_process"), [""; 0]);
    let told = process.json(SOON * 4).await;
    let addr = (
        "127.0.0.1",
        u16::try_from(told[0].as_u64().unwrap()).unwrap(),
    );
    drop(process);
    distlock_tests::eventually(SOON, "its server to be gone", || async {
        TcpStream::connect(addr).await.is_err()
    })
    .await;
}

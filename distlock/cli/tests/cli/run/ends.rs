//! `distlock run` that does not end by its command: a lock that is lost, a server that goes away, a killed program, a bound.

use std::fs;
use std::time::Instant;

use distlock_tests::eventually;

use super::*;

/// A command that says when it gets SIGTERM, and goes on.
const IGNORES_TERM: &str = "trap 'echo term' TERM; echo running; while :; do sleep 0.02; done";

#[tokio::test]
async fn lock_is_lost_and_the_command_gets_term_and_the_program_exits_with_79() {
    let server = RedisServer::start().await;
    let script = "trap 'echo term; exit 3' TERM; echo running; while :; do sleep 0.02; done";
    let args = ["run", "job", "--lease", "1s", "--", "sh", "-c", script];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    server.cli(&["DEL", "job"]).await;
    run.expect("term", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79));
    let said = run.stderr();
    assert!(
        said.contains("\"job\" is lost") && said.contains("status: 3"),
        "{said}"
    );
}

#[tokio::test]
async fn command_that_ignores_term_is_killed_after_the_time_it_has() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--lease", "1s", "--kill-after", "300ms"];
    let args = [&args[..], &["--", "sh", "-c", IGNORES_TERM]].concat();
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    server.cli(&["DEL", "job"]).await;
    run.expect("term", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79));
    let told = "the command still runs after 300ms: it gets SIGKILL";
    assert!(run.stderr().contains(told), "{}", run.stderr());
}

#[tokio::test]
async fn server_goes_away_and_the_command_goes_on_until_the_lease_is_over() {
    let mut server = RedisServer::start().await;
    let script = "trap 'echo term; exit 0' TERM; echo running; while :; do sleep 0.02; done";
    let args = ["run", "job", "--lease", "6s", "--", "sh", "-c", script];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    let killed = Instant::now();
    server.kill();
    run.expect("term", SOON).await;
    // A lease is renewed when a third of it is over.
    assert!(
        killed.elapsed() > Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(run.wait(SOON).await.code(), Some(79));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn program_is_killed_and_the_command_gets_term_and_the_lease_ends_the_lock() {
    let server = RedisServer::start().await;
    let out = tempfile_path();
    let script = format!(
        "trap 'echo term > \"{out}\"; exit 0' TERM; echo running; while :; do sleep 0.02; done",
        out = out.display()
    );
    let args = ["run", "job", "--lease", "1s", "--", "sh", "-c", &script];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    run.kill();
    eventually(SOON, "the command gets SIGTERM", || async {
        fs::read_to_string(&out).is_ok_and(|text| text == "term\n")
    })
    .await;
    eventually(SOON, "the lease is over", || async {
        !has_key(&server, "job").await
    })
    .await;
    fs::remove_file(out).unwrap();
}

#[tokio::test]
async fn what_the_command_has_started_is_ended_with_it() {
    let server = RedisServer::start().await;
    // A shell that dies of SIGTERM, and its child that does not.
    let script = format!(
        "sh -c '{}' & echo child $!; wait",
        IGNORES_TERM.replace('\'', "\"")
    );
    let url = server.url();
    let args = [
        "--url",
        &url,
        "run",
        "job",
        "--lease",
        "1s",
        "--kill-after",
        "300ms",
        "--",
    ];
    // In a session without a terminal.
    let mut run = Process::start(
        "setsid",
        [&["--wait", PROGRAM], &args[..], &["sh", "-c", &script]].concat(),
    );
    let mut child = None;
    let mut is_running = false;
    while child.is_none() || !is_running {
        let line = run.line(SOON).await;
        is_running |= line == "running";
        child = child.or_else(|| line.strip_prefix("child ")?.parse().ok());
    }
    server.cli(&["DEL", "job"]).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
    let child: i32 = child.unwrap();
    eventually(SOON, "the command's child has ended", || async move {
        rustix::process::test_kill_process(pid(child.unsigned_abs())).is_err()
    })
    .await;
}

#[tokio::test]
async fn command_is_ended_after_its_longest_hold() {
    let server = RedisServer::start().await;
    let args = [
        "run",
        "job",
        "--max-hold",
        "500ms",
        "--",
        "sh",
        "-c",
        UNTIL_TOLD,
    ];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
}

#[cfg(target_os = "linux")]
fn tempfile_path() -> std::path::PathBuf {
    let name = format!("distlock-cli-{}", std::process::id());
    std::env::temp_dir().join(name)
}

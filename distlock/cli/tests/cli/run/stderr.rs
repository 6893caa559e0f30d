//! `distlock run` whose stderr cannot be written, like a log on a disk that is full.

use distlock_tests::eventually;
use rustix::process::test_kill_process;

use super::*;

/// Starts the program with a stderr that takes nothing, in a session without a terminal.
fn start_unheard(server: &RedisServer, args: &[&str]) -> Process {
    let url = server.url();
    let script = "exec \"$0\" \"$@\" 2>/dev/full";
    let program = ["--wait", "sh", "-c", script, PROGRAM, "--url", &url];
    Process::start("setsid", [&program, args].concat())
}

#[tokio::test]
async fn lock_is_lost_and_the_command_is_killed_though_stderr_cannot_be_written() {
    let server = RedisServer::start().await;
    // It ignores SIGTERM, and ends at some time if nobody kills it.
    let script =
        "trap '' TERM; echo $$; n=0; while [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done";
    let args = ["run", "job", "--lease", "1s", "--kill-after", "300ms"];
    let mut run = start_unheard(&server, &[&args[..], &["--", "sh", "-c", script]].concat());
    let command: u32 = run.line(SOON).await.parse().unwrap();
    server.cli(&["DEL", "job"]).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79));
    eventually(SOON, "the command has ended", || async move {
        test_kill_process(pid(command)).is_err()
    })
    .await;
}

#[tokio::test]
async fn status_of_the_command_is_passed_back_though_stderr_cannot_be_written() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--json", "--", "sh", "-c", "exit 3"];
    let mut run = start_unheard(&server, &args);
    assert_eq!(run.wait(SOON).await.code(), Some(3));
    let mut failed = start_unheard(&server, &["run", "job", "--", "no-such-command"]);
    assert_eq!(failed.wait(SOON).await.code(), Some(127));
}

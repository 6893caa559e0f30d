//! `distlock run` whose stderr cannot be written, like a log on a disk that is full, or a pipe that nobody reads.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use distlock_tests::eventually;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::{Signal, kill_process, test_kill_process};

use super::*;

/// Starts the program with a stderr that takes nothing, in a session without a terminal.
fn start_unheard(server: &RedisServer, args: &[&str]) -> Process {
    let url = server.url();
    let script = "exec \"$0\" \"$@\" 2>/dev/full";
    let program = ["--wait", "sh", "-c", script, PROGRAM, "--url", &url];
    Process::start("setsid", [&program, args].concat())
}

/// It says its number, ignores SIGTERM, and ends at some time if nobody kills it.
const STUBBORN: &str =
    "trap '' TERM; echo $$; n=0; while [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done";

/// A pipe with a name that is full.
fn full_pipe(path: &Path) -> File {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut pipe = options.open(path).unwrap();
    while pipe.write(b".").is_ok() {}
    pipe
}

/// Starts the program with a pipe as its stderr, in a session without a terminal. The first line has its process id.
fn start_unread(server: &RedisServer, pipe: &Path, args: &[&str]) -> Process {
    let url = server.url();
    let script = "echo $$; pipe=$1; shift; exec \"$0\" \"$@\" 2>\"$pipe\"";
    let pipe = pipe.to_str().unwrap();
    let program = ["--wait", "sh", "-c", script, PROGRAM, pipe, "--url", &url];
    Process::start("setsid", [&program, args].concat())
}

#[tokio::test]
async fn lock_is_lost_and_the_command_is_killed_though_nobody_reads_stderr() {
    let server = RedisServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stderr");
    let mut pipe = full_pipe(&path);
    let args = ["run", "job", "--lease", "6s", "--kill-after", "300ms"];
    let args = [&args[..], &["--", "sh", "-c", STUBBORN]].concat();
    let mut run = start_unread(&server, &path, &args);
    run.line(SOON).await;
    let command: u32 = run.line(SOON).await.parse().unwrap();
    server.cli(&["DEL", "job"]).await;
    eventually(SOON, "the command has ended", || async move {
        test_kill_process(pid(command)).is_err()
    })
    .await;

    // What was to be said is there for whoever reads it later.
    let mut read = Vec::new();
    while !read.ends_with(b"ended with signal: 9 (SIGKILL)\n") {
        match pipe.read_to_end(&mut read) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(run.wait(SOON).await.code(), Some(79));
}

#[tokio::test]
async fn signal_ends_a_run_whose_last_line_nobody_reads() {
    let server = RedisServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stderr");
    let _pipe = full_pipe(&path);
    let args = [
        "run",
        "job",
        "--json",
        "--",
        "sh",
        "-c",
        "echo done; exit 3",
    ];
    let mut run = start_unread(&server, &path, &args);
    let program: u32 = run.line(SOON).await.parse().unwrap();
    run.expect("done", SOON).await;
    eventually(SOON, "the lock is free", || async {
        !has_key(&server, "job").await
    })
    .await;
    eventually(SOON, "a signal ends it", || {
        let has_ended = kill_process(pid(program), Signal::TERM).is_err();
        async move { has_ended }
    })
    .await;
    assert_eq!(run.wait(SOON).await.code(), Some(3));
}

#[tokio::test]
async fn lock_is_lost_and_the_command_is_killed_though_stderr_cannot_be_written() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--lease", "6s", "--kill-after", "300ms"];
    let mut run = start_unheard(
        &server,
        &[&args[..], &["--", "sh", "-c", STUBBORN]].concat(),
    );
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

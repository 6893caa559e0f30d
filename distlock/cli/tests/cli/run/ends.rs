//! `distlock run` that does not end by its command: a lock that is lost, a server that goes away, a killed program, a bound.

use std::fs;
use std::io::Write as _;
use std::time::Instant;

use distlock_tests::eventually;
use futures_util::future::join_all;
use rustix::process::test_kill_process;

use super::*;

/// A command that says when it gets SIGTERM, and goes on. If a test fails, it ends after a minute.
const IGNORES_TERM: &str = "trap 'echo term' TERM; echo running; \
                            n=0; while [ $n -lt 300 ]; do sleep 0.2; n=$((n+1)); done";

#[tokio::test]
async fn lock_is_lost_and_the_command_gets_term_and_the_program_exits_with_79() {
    let server = RedisServer::start().await;
    let script = "trap 'echo term; exit 3' TERM; echo running; while :; do sleep 0.02; done";
    let args = ["run", "job", "--lease", "6s", "--", "sh", "-c", script];
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
    let args = ["run", "job", "--lease", "6s", "--kill-after", "5s"];
    let args = [&args[..], &["--", "sh", "-c", IGNORES_TERM]].concat();
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    server.cli(&["DEL", "job"]).await;
    run.expect("term", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79));
    let told = "the command still runs after 5s: it gets SIGKILL";
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
    let args = ["run", "job", "--lease", "6s", "--", "sh", "-c", &script];
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
        "6s",
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
        test_kill_process(pid(child.unsigned_abs())).is_err()
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
        "5s",
        "--",
        "sh",
        "-c",
        UNTIL_TOLD,
    ];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
    let said = run.stderr();
    assert!(
        said.contains("\"job\" was held for 5s, the time of --max-hold")
            && said.contains("signal: 15"),
        "{said}"
    );
}

/// Runs a command that ignores SIGTERM until its longest hold is over. While it runs, nobody else gets the lock.
async fn is_held_until_the_command_ends(server: &RedisServer, args: &[&str]) {
    let script = format!("trap 'exit 7' USR1; {IGNORES_TERM}");
    let command = ["--kill-after", "1h", "--", "sh", "-c", &script];
    let mut run = start(server, &[args, &command].concat());
    run.expect("running", SOON).await;
    run.expect("term", SOON).await;
    let other = [args, &["--wait", "0", "--", "true"]].concat();
    let beside = output(server, &other).await;
    let said = stderr(&beside);
    assert_eq!(beside.status.code(), Some(75), "{args:?}: {said}");
    signal(&run, Signal::USR1);
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{args:?}");
    let said = run.stderr();
    assert!(
        said.contains("was held for 6s, the time of --max-hold") && said.contains("status: 7"),
        "{args:?}: {said}"
    );
    let after = output(server, &other).await;
    let said = stderr(&after);
    assert_eq!(after.status.code(), Some(0), "{args:?}: {said}");
}

#[tokio::test]
async fn lock_of_any_kind_stays_held_after_its_longest_hold_until_the_command_has_ended() {
    let server = RedisServer::start().await;
    let kinds = [
        &["a"] as &[&str],
        &["b", "c"],
        &["d", "--kind", "write"],
        &["e", "--kind", "fair"],
        &["f", "--permits", "1"],
        // Shorter than what is held in the end.
        &["g", "--lease", "5s"],
    ];
    let runs = kinds.iter().map(async |kind| {
        let args = [&["run", "--max-hold", "6s"], *kind].concat();
        is_held_until_the_command_ends(&server, &args).await;
    });
    join_all(runs).await;
}

#[tokio::test]
async fn longest_hold_of_the_url_ends_the_command_before_the_lock_is_free() {
    let server = RedisServer::start().await;
    let url = format!("{}?max_hold=6s", server.url());
    is_held_until_the_command_ends(&server, &["run", "job", "--url", &url]).await;
}

#[tokio::test]
async fn longest_hold_is_over_and_the_command_is_killed_and_the_lock_is_released() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--json", "--max-hold", "6s", "--kill-after"];
    let args = [&args[..], &["5s", "--", "sh", "-c", IGNORES_TERM]].concat();
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    run.expect("term", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
    assert!(server.keys().await.is_empty());
    let said = run.stderr();
    let said: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&said["outcome"], &said["status"], &said["signal"]),
        (&"held_too_long".into(), &79.into(), &9.into())
    );
    assert_eq!(said["released"], true, "{said}");
}

/// What a program is started by that may not signal its command, and what that command is started by. The command has another user.
/// Root may signal it all the same, unless it gives that right away. `None` if this machine cannot play that, and it says so.
#[cfg(target_os = "linux")]
pub(super) async fn that_may_not_signal() -> Option<[&'static [&'static str]; 2]> {
    const WITHOUT_RIGHT: [&str; 5] = ["setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill"];
    const AS_OTHER: [&str; 4] = ["setpriv", "--reuid", "65534", "--clear-groups"];
    const BY_SUDO: [&str; 4] = ["sudo", "-n", "-u", "#65534"];
    let works = async |[program, args @ ..]: [&str; 4]| {
        let mut command = tokio::process::Command::new(program);
        let output = command.args(args).arg("true").output().await;
        output.is_ok_and(|output| output.status.success())
    };
    // Root of a user namespace may lack other users.
    if rustix::process::geteuid().is_root() && works(AS_OTHER).await {
        return Some([&WITHOUT_RIGHT, &AS_OTHER]);
    }
    if works(BY_SUDO).await {
        return Some([&["env"], &BY_SUDO]);
    }
    let needs =
        "a command that its program may not signal needs root, or a sudo without a password";
    assert!(std::env::var_os("CI").is_none(), "{needs}");
    // Not by a macro, whose text a test that passes does not show.
    let _told = writeln!(std::io::stderr(), "not played: {needs}");
    None
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn signal_ends_the_wait_for_a_command_that_a_kill_does_not_end() {
    let Some([starter, user]) = that_may_not_signal().await else {
        return;
    };
    let server = RedisServer::start().await;
    let url = server.url();
    let args = ["--url", &url, "run", "job", "--json", "--kill-after", "5s"];
    let program = [&starter[1..], &[PROGRAM], &args].concat();
    // It ends by itself if nobody ends it.
    let script = "echo running; exec sleep 60";
    let command = [&["--"], user, &["sh", "-c", script]].concat();
    for (bound, outcome) in [("--max-hold", "held_too_long"), ("--lease", "lost")] {
        let words = [&program[..], &[bound, "6s"], &command].concat();
        let mut run = Process::start(starter[0], words);
        run.expect("running", SOON).await;
        if outcome == "lost" {
            server.cli(&["DEL", "job"]).await;
        }
        eventually(SOON, "the kill has failed", || async {
            let said = run.stderr();
            let is_killed = said.contains("still runs after 5s: it may not be signalled");
            is_killed.then_some(()).ok_or(said)
        })
        .await;
        let since = Instant::now();
        let ended = loop {
            // A signal that comes within a second of the kill is passed on alone.
            run.terminate();
            if let Some(ended) = run.exited() {
                break ended;
            }
            assert!(since.elapsed() < SOON, "it waits: {}", run.stderr());
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let said = run.stderr();
        assert_eq!(ended.code(), Some(79), "{said}");
        assert!(server.keys().await.is_empty(), "{said}");
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["outcome"], outcome, "{said}");
        let message = last["message"].as_str().unwrap();
        assert!(message.contains("the command still runs"), "{message}");
    }
}

#[cfg(target_os = "linux")]
fn tempfile_path() -> std::path::PathBuf {
    let name = format!("distlock-cli-{}", std::process::id());
    std::env::temp_dir().join(name)
}

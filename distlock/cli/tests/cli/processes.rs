//! What the command leaves behind: processes that have ended and that nobody asks about.
//!
//! The first process of a container is the parent of all that lose theirs. So is, without any right, a process that calls
//! itself a reaper of its descendants: the tests start this program anew as such a one.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use distlock_tests::eventually;
use rustix::process::set_child_subreaper;

use super::*;

/// Not 0: what is to be done by a copy of this program.
const ROLE: &str = "DISTLOCK_TEST_ROLE";

/// The words of the command line, each on a line.
const WORDS: &str = "DISTLOCK_TEST_WORDS";

/// A copy of this program that becomes the parent of orphans, and then `distlock`, or its parent.
fn reaper(server: &RedisServer, role: &str, args: &[&str]) -> Process {
    let url = server.url();
    let words = [&["--url", &url], args].concat().join("\n");
    let own = env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let (role, words) = (format!("{ROLE}={role}"), format!("{WORDS}={words}"));
    let name = "processes::this_program_as_a_reaper";
    let test = [own, "--exact", name, "--nocapture", "--test-threads=1"];
    // In a session without a terminal.
    let start = ["--wait", "env", &role, &words];
    Process::start("setsid", start.into_iter().chain(test))
}

#[test]
fn this_program_as_a_reaper() {
    let Ok(role) = env::var(ROLE) else { return };
    set_child_subreaper(rustix::process::Pid::from_raw(1)).unwrap();
    let words = env::var(WORDS).unwrap();
    let mut distlock = Command::new(PROGRAM);
    distlock
        .args(words.lines())
        .env_remove(ROLE)
        .env_remove(WORDS);
    if role == "itself" {
        panic!("{}", distlock.exec());
    }
    // Asks about nobody but its own child.
    let ended = distlock.status().unwrap();
    std::process::exit(ended.code().unwrap_or(1));
}

async fn line_with(process: &mut Process, begins: &str) -> String {
    loop {
        let line = process.line(SOON).await;
        // The first line may follow what the test program has written.
        if let Some((_, rest)) = line.split_once(begins) {
            return rest.to_owned();
        }
    }
}

/// The processes that have ended and are asked about by nobody yet, among the children of this one.
fn zombies_of(parent: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats =
        processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let is_zombie = |stat: &String| {
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<_> = rest.split_whitespace().collect();
        fields[0] == "Z" && fields[1] == parent
    };
    stats.filter(is_zombie).count()
}

#[tokio::test]
async fn orphans_of_the_command_are_reaped_while_it_runs() {
    let server = RedisServer::start().await;
    let script = "n=0; while [ $n -lt 50 ]; do (true & ) ; n=$((n+1)); done; echo parent $PPID; \
                  echo started; read line; exit 7";
    let args = ["run", "job", "--", "sh", "-c", script];
    let mut run = reaper(&server, "itself", &args);
    let parent = line_with(&mut run, "parent ").await;
    line_with(&mut run, "started").await;
    eventually(SOON, "no zombie is left", || async {
        match zombies_of(&parent) {
            0 => Ok(()),
            left => Err(format!("{left} zombies")),
        }
    })
    .await;
    run.send("end");
    assert_eq!(run.wait(SOON).await.code(), Some(7), "{}", run.stderr());
}

#[tokio::test]
async fn lock_is_lost_and_orphans_that_have_ended_do_not_take_the_time_before_the_kill() {
    let server = RedisServer::start().await;
    // The child of the shell dies of SIGTERM beside the shell, and its parent from then on may be one that does not ask.
    let script = "sleep 1000 & echo started; wait";
    for role in ["itself", "parent"] {
        let args = ["run", "job", "--lease", "6s", "--kill-after", "1h"];
        let mut run = reaper(
            &server,
            role,
            &[&args[..], &["--", "sh", "-c", script]].concat(),
        );
        line_with(&mut run, "started").await;
        server.cli(&["DEL", "job"]).await;
        assert_eq!(
            run.wait(SOON).await.code(),
            Some(79),
            "{role}: {}",
            run.stderr()
        );
        assert!(
            !run.stderr().contains("SIGKILL"),
            "{role}: {}",
            run.stderr()
        );
    }
}

//! `distlock run`.

mod ends;
mod rest;
mod signals;
#[cfg(target_os = "linux")]
mod stderr;

use distlock_tests::eventually;
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::server::free_port;
use serde_json::Value;

use super::*;

/// A command that says when it runs, and ends with status 7 when it is told to.
const UNTIL_TOLD: &str = "echo running; read line; echo got $line; exit 7";

async fn has_key(server: &RedisServer, key: &str) -> bool {
    server.pttl(key).await != -2
}

#[tokio::test]
async fn lock_is_held_while_the_command_runs_and_free_when_it_has_ended() {
    let server = RedisServer::start().await;
    let mut run = start(&server, &["run", "job", "--", "sh", "-c", UNTIL_TOLD]);
    run.expect("running", SOON).await;
    assert!(has_key(&server, "job").await);
    let beside = output(&server, &["run", "job", "--wait", "0", "--", "true"]).await;
    assert_eq!(beside.status.code(), Some(75), "{}", stderr(&beside));
    assert!(stderr(&beside).contains("\"job\""), "{}", stderr(&beside));

    // Its stdin is that of the program.
    run.ask("go", "got go", SOON).await;
    assert_eq!(run.wait(SOON).await.code(), Some(7));
    assert!(server.keys().await.is_empty());
    let after = output(&server, &["run", "job", "--wait", "0", "--", "true"]).await;
    assert_eq!(after.status.code(), Some(0), "{}", stderr(&after));
}

#[tokio::test]
async fn run_of_the_same_key_inside_a_run_says_that_it_waits_for_itself() {
    let server = RedisServer::start().await;
    let url = server.url();
    let nested = |key| {
        let inner = [
            PROGRAM, "--url", &url, "run", key, "--wait", "10s", "--", "true",
        ];
        [&["run", "job", "--"], &inner[..]].concat()
    };
    let same = output(&server, &nested("job")).await;
    assert_eq!(same.status.code(), Some(75), "{}", stderr(&same));
    let told = stderr(&same).matches("DISTLOCK_KEY says").count();
    assert_eq!(told, 1, "{}", stderr(&same));
    let other = output(&server, &nested("other")).await;
    assert_eq!((other.status.code(), &*stderr(&other)), (Some(0), ""));
}

#[tokio::test]
async fn lease_is_renewed_while_the_command_runs() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--lease", "6s", "--", "sh", "-c", UNTIL_TOLD];
    let mut run = start(&server, &args);
    run.expect("running", SOON).await;
    let mut least = i64::MAX;
    for renewals in 1..=2 {
        // It falls, and rises when it is renewed.
        loop {
            let left = server.pttl("job").await;
            assert!(left > 0, "the lock is gone before renewal {renewals}");
            if left > least {
                least = i64::MAX;
                break;
            }
            least = left;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    run.send("end");
    assert_eq!(run.wait(SOON).await.code(), Some(7));
}

#[tokio::test]
async fn command_waits_for_the_lock_of_another() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--", "sh", "-c", UNTIL_TOLD];
    let (mut first, mut second) = (start(&server, &args), None);
    first.expect("running", SOON).await;
    let second = second.insert(start(&server, &args));
    eventually(SOON, "the second waits", || async {
        server
            .pubsub_channels()
            .await
            .iter()
            .any(|one| one.contains("job"))
    })
    .await;
    first.send("end");
    second.expect("running", SOON).await;
    second.send("end");
    assert_eq!(second.wait(SOON).await.code(), Some(7));
}

#[tokio::test]
async fn wait_that_ends_while_the_lock_is_taken_exits_with_75_and_never_starts_the_command() {
    let server = RedisServer::start().await;
    let mut holder = start(&server, &["run", "job", "--", "sh", "-c", UNTIL_TOLD]);
    holder.expect("running", SOON).await;
    let args = ["run", "job", "--wait", "2s", "--", "echo", "started"];
    let output = output(&server, &args).await;
    assert_eq!(output.status.code(), Some(75));
    assert_eq!(stdout(&output), "");
}

#[tokio::test]
async fn wait_that_ends_looks_once_more_and_says_which_machine_has_the_lock() {
    let server = RedisServer::start().await;
    let mut holder = start(
        &server,
        &[
            "--name", "web-2", "run", "job", "--", "sh", "-c", UNTIL_TOLD,
        ],
    );
    holder.expect("running", SOON).await;
    for wait in ["0", "2s"] {
        let told = "; after the wait \"job\" was held by web-2 from 127.0.0.1:";
        let mut said = String::new();
        // A machine that stands still may take longer than the second that the look has.
        for _ in 0..3 {
            let late = output(&server, &["run", "job", "--wait", wait, "--", "true"]).await;
            said = stderr(&late);
            assert_eq!(late.status.code(), Some(75), "{said}");
            if said.contains(told) {
                break;
            }
        }
        assert!(said.contains(told), "{said}");
        assert!(said.matches(", owner ").count() == 1, "{said}");
    }
    holder.ask("go", "got go", SOON).await;
    assert_eq!(holder.wait(SOON).await.code(), Some(7));
}

#[tokio::test]
async fn key_with_data_of_another_program_is_no_busy_lock() {
    let server = RedisServer::start().await;
    server.cli(&["HSET", "cart", "article", "7"]).await;
    server.cli(&["SET", "text", "7 articles"]).await;
    for keys in [&["cart"] as &[&str], &["job", "cart"], &["text"]] {
        let wait = ["--wait", "0", "--busy-status", "0", "--", "true"];
        let refused = output(&server, &[&["run"], keys, &wait].concat()).await;
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(70), "{keys:?}: {said}");
        assert!(
            said.contains("another program") || said.contains("another type of value"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn hash_of_another_program_is_found_if_the_user_may_look_and_otherwise_the_look_is_said_to_fail()
 {
    let server = RedisServer::builder().without_default_user().start().await;
    server.cli(&["HSET", "shop:cart", "article", "7"]).await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let args = ["--url", &url, "run", "shop:cart", "--wait", "0"];
    let args = [&args[..], &["--busy-status", "3", "--", "true"]].concat();
    let looks = [rights::of(rights::LOCKS), rights::of(rights::LOOKS)].concat();
    let failed = "the look that tells a lock from data of another program has failed";
    for (rights, status, says) in [
        (rights::of(rights::LOCKS), 3, failed),
        (looks, 70, "has data of another program and is no lock"),
    ] {
        server.set_user("shop", &rights).await;
        let refused = plain_output(args.iter().copied()).await;
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(status), "{said}");
        assert!(said.contains(says), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[tokio::test]
async fn server_that_is_away_exits_with_69() {
    let url = format!("redis://:hush@127.0.0.1:{}", free_port());
    let args = ["--url", &url, "--connect-timeout", "200ms"];
    let output = plain_output(args.into_iter().chain(["run", "job", "--", "true"])).await;
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(!stderr(&output).contains("hush"), "{}", stderr(&output));
}

#[tokio::test]
async fn command_that_does_not_exist_or_cannot_run_exits_as_in_a_shell() {
    let server = RedisServer::start().await;
    for (command, status) in [("no-such-command", 127), ("/", 126)] {
        let output = output(&server, &["run", "job", "--", command]).await;
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
        assert!(server.keys().await.is_empty());
    }
}

#[tokio::test]
async fn command_finds_key_and_token_in_its_environment() {
    let server = RedisServer::start().await;
    let script = "echo $DISTLOCK_KEY ${DISTLOCK_TOKEN-none}";
    let fenced = ["run", "job", "--kind", "fenced", "--", "sh", "-c", script];
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let said = stdout(&output(&server, &fenced).await);
        let token = said.trim().strip_prefix("job ").unwrap();
        tokens.push(token.parse::<u64>().unwrap());
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    // A lock without a token, inside a lock with one.
    let url = server.url();
    let inner = [
        PROGRAM, "--url", &url, "run", "inner", "--", "sh", "-c", script,
    ];
    let nested = [&fenced[..5], &inner[..]].concat();
    assert_eq!(stdout(&output(&server, &nested).await), "inner none\n");
}

#[tokio::test]
async fn key_stays_taken_for_the_least_time() {
    let server = RedisServer::start().await;
    let args = ["run", "job", "--hold-at-least", "1m", "--", "true"];
    assert_eq!(output(&server, &args).await.status.code(), Some(0));
    let again = output(&server, &["run", "job", "--wait", "0", "--", "true"]).await;
    assert_eq!(again.status.code(), Some(75), "{}", stderr(&again));
}

#[tokio::test]
async fn readers_run_side_by_side_and_a_writer_alone() {
    let server = RedisServer::start().await;
    let reads = ["run", "doc", "--kind", "read", "--", "sh", "-c", UNTIL_TOLD];
    let (mut one, mut two) = (start(&server, &reads), start(&server, &reads));
    one.expect("running", SOON).await;
    two.expect("running", SOON).await;
    let write = ["run", "doc", "--kind", "write", "--wait", "0", "--", "true"];
    assert_eq!(output(&server, &write).await.status.code(), Some(75));
    for reader in [&mut one, &mut two] {
        reader.send("end");
        assert_eq!(reader.wait(SOON).await.code(), Some(7));
    }
    assert_eq!(output(&server, &write).await.status.code(), Some(0));
}

#[tokio::test]
async fn outcome_is_one_line_of_json_on_stderr_also_behind_a_line_without_an_end() {
    let server = RedisServer::start().await;
    let args = [
        "run",
        "job",
        "--json",
        "--kind",
        "fenced",
        "--",
        "sh",
        "-c",
        "echo out; printf '50 %%' >&2; exit 3",
    ];
    let output = output(&server, &args).await;
    assert_eq!(stdout(&output), "out\n");
    let said = stderr(&output);
    let (progress, said) = said.split_once('\n').unwrap();
    assert_eq!(progress, "50 %");
    let said: Value = serde_json::from_str(said).unwrap();
    assert_eq!(said["keys"], serde_json::json!(["job"]));
    assert_eq!(said["outcome"], "exited");
    assert_eq!(
        (&said["status"], &said["command_status"]),
        (&3.into(), &3.into())
    );
    assert!(said["token"].is_u64() && said["waited_ms"].is_u64() && said["held_ms"].is_u64());
}

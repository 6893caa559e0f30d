//! `distlock run` of several keys, with permits, with a status of its own for a taken lock, and with a release that fails.

use distlock_tests::{Proxy, Select, Which, eventually};
use serde_json::Value;

use super::*;

const UNTIL_TOLD: [&str; 4] = ["--", "sh", "-c", "echo running; read line; exit 7"];

async fn running(server: &RedisServer, args: &[&str]) -> Process {
    let mut run = start(server, &[args, &UNTIL_TOLD].concat());
    run.expect("running", SOON).await;
    run
}

#[tokio::test]
async fn run_of_two_keys_holds_both_and_each_of_them_is_busy_to_others_in_any_order() {
    let server = RedisServer::start().await;
    let mut run = running(&server, &["run", "a", "b"]).await;
    let mut keys = server.keys().await;
    keys.sort();
    assert_eq!(keys, ["a", "b"]);
    for keys in [&["a"] as &[&str], &["b"], &["b", "a"], &["c", "b"]] {
        let args = [&["run"], keys, &["--wait", "0", "--", "echo", "started"]].concat();
        let busy = output(&server, &args).await;
        assert_eq!(
            (busy.status.code(), stdout(&busy)),
            (Some(75), String::new()),
            "{keys:?}"
        );
    }
    run.send("end");
    assert_eq!(run.wait(SOON).await.code(), Some(7));
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn two_runs_of_the_same_keys_in_crossed_orders_both_end() {
    let server = RedisServer::start().await;
    let (one, other) = (
        ["run", "a", "b", "--", "true"],
        ["run", "b", "a", "--", "true"],
    );
    for _ in 0..5 {
        let (one, other) = tokio::join!(output(&server, &one), output(&server, &other));
        assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
        assert_eq!(other.status.code(), Some(0), "{}", stderr(&other));
    }
}

#[tokio::test]
async fn command_finds_each_key_on_a_line_and_an_inner_run_of_one_of_them_says_that_it_waits_for_itself()
 {
    let server = RedisServer::start().await;
    let keys = ["run", "a", "b c", "--json", "--"];
    let told = output(
        &server,
        &[&keys[..], &["sh", "-c", "echo \"$DISTLOCK_KEY\""]].concat(),
    )
    .await;
    assert_eq!(stdout(&told), "a\nb c\n");
    let said: Value = serde_json::from_str(&stderr(&told)).unwrap();
    assert_eq!(said["keys"], serde_json::json!(["a", "b c"]));
    let url = server.url();
    let inner = [
        PROGRAM, "--url", &url, "run", "b c", "--wait", "10s", "--", "true",
    ];
    let nested = output(&server, &[&["run", "a", "b c", "--"], &inner[..]].concat()).await;
    assert_eq!(nested.status.code(), Some(75), "{}", stderr(&nested));
    assert!(
        stderr(&nested).contains("still waiting for \"b c\""),
        "{}",
        stderr(&nested)
    );
}

#[tokio::test]
async fn so_many_commands_as_there_are_permits_run_side_by_side_and_the_next_waits_for_one_of_them()
{
    let server = RedisServer::start().await;
    let args = ["run", "export", "--permits", "2"];
    let (mut one, mut two) = (running(&server, &args).await, running(&server, &args).await);
    let none = [&args[..], &["--wait", "0", "--", "echo", "started"]].concat();
    let busy = output(&server, &none).await;
    assert_eq!(
        (busy.status.code(), stdout(&busy)),
        (Some(75), String::new()),
        "{}",
        stderr(&busy)
    );
    let mut three = start(&server, &[&args[..], &UNTIL_TOLD].concat());
    one.send("end");
    three.expect("running", SOON).await;
    assert_eq!(one.wait(SOON).await.code(), Some(7));
    for run in [&mut two, &mut three] {
        run.send("end");
        assert_eq!(run.wait(SOON).await.code(), Some(7));
    }
}

#[tokio::test]
async fn permits_of_a_run_that_was_killed_come_back_with_their_lease() {
    let server = RedisServer::start().await;
    let args = ["run", "export", "--permits", "1", "--lease", "6s"];
    let mut killed = running(&server, &args).await;
    killed.kill();
    let next = output(&server, &[&args[..], &["--", "echo", "started"]].concat()).await;
    assert_eq!(
        (next.status.code(), stdout(&next)),
        (Some(0), "started\n".to_owned()),
        "{}",
        stderr(&next)
    );
}

#[tokio::test]
async fn semaphore_is_deleted_and_a_run_that_waits_sets_the_number_again_and_gets_its_permit() {
    let server = RedisServer::start().await;
    for wait in [&[] as &[&str], &["--wait", "1h"]] {
        let args = [&["run", "export", "--permits", "1"], wait].concat();
        let mut holder = running(&server, &args).await;
        let mut waiting = start(&server, &[&args[..], &UNTIL_TOLD].concat());
        eventually(SOON, "the second waits", || async {
            let channels = server.pubsub_channels().await;
            channels.iter().any(|one| one.contains("export"))
        })
        .await;
        let deleted = output(&server, &["release", "export", "--yes"]).await;
        assert_eq!(deleted.status.code(), Some(0), "{}", stderr(&deleted));
        waiting.expect("running", SOON).await;
        waiting.send("end");
        assert_eq!(
            waiting.wait(SOON).await.code(),
            Some(7),
            "{}",
            waiting.stderr()
        );
        assert_eq!(holder.wait(SOON).await.code(), Some(79));
    }
}

#[tokio::test]
async fn semaphore_is_deleted_right_after_the_grant_and_the_run_makes_it_again() {
    let server = RedisServer::start().await;
    let args = ["run", "export", "--permits", "1"];
    // From here on the server has the scripts and the semaphore.
    let mut first = running(&server, &args).await;
    first.send("end");
    assert_eq!(first.wait(SOON).await.code(), Some(7));
    let proxy = Proxy::start(server.addr()).await;
    // The scripts try to set the number, look at it, acquire the permit, and look at the number again.
    let look = proxy.hold(
        Select::COMMANDS,
        Which::nth(4).containing("{export}:timeout"),
    );
    let url = proxy.url();
    let words = [&["--url", &url], &args[..], &UNTIL_TOLD].concat();
    let mut run = Process::start(PROGRAM, words);
    let look = look.caught(SOON).await;
    let other = distlock::Client::connect(&server.url()).await.unwrap();
    let semaphore = other.expirable_semaphore("export");
    assert_eq!(semaphore.acquired_permits().await.unwrap(), 1);
    assert!(semaphore.delete().await.unwrap());
    look.deliver().await.unwrap();
    run.expect("running", SOON).await;
    assert_eq!(semaphore.acquired_permits().await.unwrap(), 1);
    run.send("end");
    assert_eq!(run.wait(SOON).await.code(), Some(7), "{}", run.stderr());
}

#[tokio::test]
async fn number_of_permits_that_changes_during_a_wait_is_refused_and_the_permit_is_given_back() {
    let server = RedisServer::start().await;
    let run = ["run", "export", "--permits", "1", "--"];
    let mut holder = running(&server, &run[..4]).await;
    let mut waiting = start(&server, &[&run[..], &["echo", "started"]].concat());
    eventually(SOON, "the second waits", || async {
        let channels = server.pubsub_channels().await;
        channels.iter().any(|one| one.contains("export"))
    })
    .await;
    let other = distlock::Client::connect(&server.url()).await.unwrap();
    let semaphore = other.expirable_semaphore("export");
    semaphore.set_permits(3).await.unwrap();
    let ended = waiting.wait(SOON).await;
    let said = waiting.stderr();
    assert_eq!(ended.code(), Some(64), "{said}");
    assert!(
        said.contains("\"export\" has 3 permits, of which 1 are taken, and --permits says 1"),
        "{said}"
    );
    assert_eq!(semaphore.acquired_permits().await.unwrap(), 1);
    holder.send("end");
    assert_eq!(holder.wait(SOON).await.code(), Some(7));
}

#[tokio::test]
async fn number_of_permits_changes_while_none_is_taken_and_is_refused_otherwise() {
    let server = RedisServer::start().await;
    let mut run = running(&server, &["run", "export", "--permits", "1"]).await;
    let two = ["run", "export", "--permits", "2", "--", "echo", "started"];
    let refused = output(&server, &two).await;
    assert_eq!(
        (refused.status.code(), stdout(&refused)),
        (Some(64), String::new())
    );
    let said = stderr(&refused);
    assert!(
        said.contains("\"export\" has 1 permits, of which 1 are taken, and --permits says 2"),
        "{said}"
    );
    run.send("end");
    run.wait(SOON).await;
    let changed = output(&server, &two).await;
    assert_eq!(
        (changed.status.code(), stdout(&changed)),
        (Some(0), "started\n".to_owned()),
        "{}",
        stderr(&changed)
    );
    for args in [
        &["a", "b", "--permits", "2"] as &[&str],
        &["a", "--permits", "0"],
        &["a", "--permits", "2", "--kind", "fair"],
    ] {
        let wrong = output(&server, &[&["run"], args, &["--", "true"]].concat()).await;
        assert_eq!(
            wrong.status.code(),
            Some(64),
            "{args:?}: {}",
            stderr(&wrong)
        );
    }
}

#[tokio::test]
async fn lock_that_is_taken_exits_with_the_status_that_was_asked_for_and_says_so_in_json() {
    let server = RedisServer::start().await;
    let _held = running(&server, &["run", "job"]).await;
    let args = [
        "run",
        "job",
        "--wait",
        "0",
        "--busy-status",
        "0",
        "--json",
        "--",
        "echo",
        "started",
    ];
    let busy = output(&server, &args).await;
    assert_eq!(
        (busy.status.code(), stdout(&busy)),
        (Some(0), String::new())
    );
    let said: Value = serde_json::from_str(&stderr(&busy)).unwrap();
    assert_eq!(
        (&said["outcome"], &said["status"]),
        (&"busy".into(), &0.into())
    );
    assert!(said["message"].as_str().unwrap().contains("job"), "{said}");
}

#[tokio::test]
async fn server_goes_away_before_the_release_and_the_status_is_the_commands_and_the_key_is_said_to_stay()
 {
    for json in [false, true] {
        let mut server = RedisServer::start().await;
        let flags: &[&str] = if json { &["--json"] } else { &[] };
        let mut run = running(&server, &[&["run", "job", "--lease", "1m"], flags].concat()).await;
        server.kill();
        run.send("end");
        assert_eq!(run.wait(SOON).await.code(), Some(7), "{}", run.stderr());
        let said = run.stderr();
        if json {
            let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            assert_eq!(
                (&said["outcome"], &said["status"]),
                (&"exited".into(), &7.into())
            );
            assert_eq!(
                (&said["released"], &said["free_within_ms"]),
                (&false.into(), &60_000.into())
            );
        } else {
            assert!(
                said.contains("released: false")
                    && said.contains("\"job\" may stay taken for up to 1m"),
                "{said}"
            );
        }
    }
}

#[tokio::test]
async fn release_is_confirmed_in_the_line_of_json_with_the_rest_of_the_least_time() {
    let server = RedisServer::start().await;
    let told = |args: &'static [&'static str]| {
        let server = &server;
        async move {
            let args = [&["run", "job", "--json"], args, &["--", "true"]].concat();
            let output = output(server, &args).await;
            serde_json::from_str::<Value>(&stderr(&output)).unwrap()
        }
    };
    let said = told(&[]).await;
    assert_eq!(
        (&said["released"], &said["free_within_ms"]),
        (&true.into(), &0.into()),
        "{said}"
    );
    let said = told(&["--hold-at-least", "1m"]).await;
    let rest = said["free_within_ms"].as_u64().unwrap();
    assert!(
        said["released"] == true && (30_000..=60_000).contains(&rest),
        "{said}"
    );
}

/// Failures in JSON: a line with the reason's word, the status and the text.
#[tokio::test]
async fn each_failure_is_a_line_of_json_on_stderr_with_json() {
    let server = RedisServer::start().await;
    server.cli(&["SET", "text", "text"]).await;
    let away = format!("redis://127.0.0.1:{}", distlock_tests::server::free_port());
    let url = server.url();
    for (words, outcome, status) in [
        (
            &["--url", &*away, "--connect-timeout", "200ms", "who", "job"] as &[&str],
            "unavailable",
            69,
        ),
        (
            &["--url", &url, "run", "job", "--", "no-such-command"],
            "not_found",
            127,
        ),
        (&["--url", &url, "run", "job", "--", "/"], "cannot_run", 126),
        (
            &["--url", &url, "run", "text", "--wait", "0", "--", "true"],
            "failed",
            70,
        ),
        (&["--url", &url, "release", "job"], "usage", 64),
        (
            &["--url", &url, "run", "job", "--wait", "5", "--", "true"],
            "usage",
            64,
        ),
        (&["fly"], "usage", 64),
        (&["--url", "http://localhost", "ls"], "usage", 64),
    ] {
        let failed = plain_output(["--json"].iter().chain(words).copied()).await;
        assert_eq!(
            (failed.status.code(), stdout(&failed)),
            (Some(status), String::new()),
            "{words:?}"
        );
        // A command that cannot be run has also an end: its line comes next.
        let said = stderr(&failed);
        let line: Value = serde_json::from_str(said.lines().next().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", stderr(&failed)));
        assert_eq!(
            (&line["outcome"], &line["status"]),
            (&outcome.into(), &status.into()),
            "{words:?}"
        );
        let message = line["message"].as_str().unwrap();
        assert!(
            !message.is_empty() && !message.contains('\x1b'),
            "{words:?}: {message}"
        );
    }
}

#[tokio::test]
async fn lost_lock_of_two_keys_names_both() {
    let server = RedisServer::start().await;
    let mut run = running(&server, &["run", "a", "b", "--lease", "6s"]).await;
    server.cli(&["DEL", "b"]).await;
    assert_eq!(run.wait(SOON).await.code(), Some(79), "{}", run.stderr());
    assert!(
        run.stderr().contains("the lock \"a\", \"b\" is lost"),
        "{}",
        run.stderr()
    );
    eventually(SOON, "the other key is free", || async {
        server.keys().await.is_empty()
    })
    .await;
}

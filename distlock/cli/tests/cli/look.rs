//! `distlock ls`, `who` and `watch` without a terminal.

use std::time::Instant;

use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::{Flow, Proxy, Select, Way};
use serde_json::Value;

use super::*;

/// How late each answer of a slow server is.
const DELAY: Duration = Duration::from_millis(20);

const RUNNING: [&str; 4] = ["--", "sh", "-c", "echo running; read line"];

async fn holder(server: &RedisServer, args: &[&str]) -> Process {
    let mut run = start(server, &[args, &RUNNING].concat());
    run.expect("running", SOON).await;
    run
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output))
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[tokio::test]
async fn locks_under_a_pattern_are_listed_with_their_holders() {
    let server = RedisServer::start().await;
    let one = holder(&server, &["run", "order:2", "--kind", "fenced"]).await;
    let _two = holder(&server, &["run", "order:1"]).await;
    let _other = holder(&server, &["run", "stock:1", "--kind", "write"]).await;
    server.cli(&["SET", "order:none", "text"]).await;

    let listed = json(&output(&server, &["ls", "order:*", "--json"]).await);
    let keys: Vec<_> = listed["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| &lock["key"])
        .collect();
    assert_eq!(keys, ["order:1", "order:2"], "{listed:#}");
    let holder = &listed["locks"][1]["holders"][0];
    let name = holder["client"]["name"].as_str().unwrap();
    assert!(name.contains(&one.pid().to_string()), "{listed:#}");
    let left = holder["lease_left_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&left), "{listed:#}");

    let text = stdout(&output(&server, &["ls"]).await);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("KEY") && lines.len() == 4, "{text}");
    assert!(
        lines[3].starts_with("stock:1  write_lock") && lines[3].contains('s'),
        "{text}"
    );
    // As into a file or a pipe.
    let watched = stdout(&output(&server, &["watch", "order:*"]).await);
    assert_eq!(watched.lines().count(), 3, "{watched}");

    let cut = output(&server, &["ls", "--limit", "1"]).await;
    assert_eq!(stdout(&cut).lines().count(), 2);
    assert!(stderr(&cut).contains("--limit"), "{}", stderr(&cut));
    let none = output(&server, &["ls", "nothing*"]).await;
    assert_eq!(
        (none.status.code(), stdout(&none)),
        (Some(0), String::new())
    );
}

#[tokio::test]
async fn counters_of_other_programs_push_no_lock_out_of_the_list_and_are_shown_with_all() {
    let server = RedisServer::start().await;
    for n in 0..40 {
        server.cli(&["SET", &format!("count:{n}"), "7"]).await;
    }
    let _held = holder(&server, &["run", "job:1"]).await;
    let _permit = holder(&server, &["run", "export", "--permits", "2"]).await;
    let keys = |listed: &Value| {
        let locks = listed["locks"].as_array().unwrap().iter();
        locks
            .map(|lock| lock["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let listed = json(&output(&server, &["ls", "--json", "--limit", "2"]).await);
    assert_eq!(keys(&listed), ["export", "job:1"], "{listed:#}");
    assert_eq!(listed["is_cut"], false);
    let all = json(&output(&server, &["ls", "--json", "--all"]).await);
    assert_eq!(keys(&all).len(), 42, "{all:#}");
    // Locks come first, so a limit leaves out numbers.
    let few = json(&output(&server, &["watch", "--json", "--all", "--limit", "1"]).await);
    assert_eq!(
        (keys(&few), &few["is_cut"]),
        (vec!["job:1".to_owned()], &true.into())
    );

    let cut = output(&server, &["ls", "--max-keys", "1"]).await;
    assert!(
        stderr(&cut).contains("keys and stopped"),
        "{}",
        stderr(&cut)
    );
    assert!(stdout(&cut).contains("job:1"), "{}", stdout(&cut));
    let cut = json(&output(&server, &["ls", "--max-keys", "1", "--json"]).await);
    assert_eq!(cut["is_cut"], true);
}

#[tokio::test]
async fn lock_among_many_keys_is_shown_before_all_are_looked_at_and_an_interrupt_ends_the_look() {
    let server = RedisServer::start().await;
    // A look finds keys in an order of the server's own: of so many locks, one comes early.
    let keys: Vec<_> = (0..20).map(|n| format!("job:{n}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let _held = holder(&server, &[&["run"], &keys[..]].concat()).await;
    server.cli(&["DEBUG", "POPULATE", "300000", "text"]).await;
    let proxy = Proxy::start(server.addr()).await;
    let slow = proxy.flow(Select::ALL, Way::Down, Flow::Delay(DELAY));
    let url = proxy.url();
    let ls = ["--url", &url, "ls", "--all", "--max-keys", "1000000"];
    let mut ls = Process::start(PROGRAM, ls);
    ls.expect("KEY", SOON).await;
    ls.expect("job:", SOON).await;
    assert!(
        ls.exited().is_none(),
        "it has looked at all keys: {}",
        ls.stderr()
    );
    ls.interrupt();
    let ended = ls.wait(SOON).await;
    assert_eq!(ended.code(), None, "{ended}");
    assert!(slow.hits() > 0);
}

#[tokio::test]
async fn look_ends_when_the_reader_of_its_list_has_gone() {
    let server = RedisServer::start().await;
    // Spread over all pages.
    let keys: Vec<_> = (0..20).map(|n| format!("job:{n}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let _held = holder(&server, &[&["run"], &keys[..]].concat()).await;
    server.cli(&["DEBUG", "POPULATE", "300000", "text"]).await;
    let proxy = Proxy::start(server.addr()).await;
    let slow = proxy.flow(Select::ALL, Way::Down, Flow::Delay(DELAY));
    let url = proxy.url();
    for command in ["ls", "watch"] {
        let before = server.command_calls("scan").await;
        let look = ["--url", &url, command, "--all", "--max-keys", "1000000"];
        let mut look = Process::start(PROGRAM, look);
        look.expect("KEY", SOON).await;
        drop(look.take_output());
        let ended = look.wait(SOON).await;
        assert_eq!((ended.code(), look.stderr()), (Some(0), String::new()));
        let pages = server.command_calls("scan").await - before;
        // A look at all keys takes 600.
        assert!(pages < 570, "{command}: {pages} pages");
    }
    assert!(slow.hits() > 0);
}

#[tokio::test]
async fn look_rests_after_each_page_for_as_long_as_the_page_took() {
    let server = RedisServer::start().await;
    server.cli(&["DEBUG", "POPULATE", "20000", "text"]).await;
    let proxy = Proxy::start(server.addr()).await;
    let slow = proxy.flow(Select::ALL, Way::Down, Flow::Delay(DELAY));
    let started = Instant::now();
    let listed = plain_output(["--url", &proxy.url(), "ls", "none*"]).await;
    let took = started.elapsed();
    assert_eq!(listed.status.code(), Some(0), "{}", stderr(&listed));
    let pages = u32::try_from(server.command_calls("scan").await).unwrap();
    assert!(pages >= 40 && slow.hits() > 0, "{pages}");
    // A page is one command, since nothing is found. No rest is needed after the last one.
    assert!(
        took >= DELAY * (2 * pages - 1),
        "{took:?} for {pages} pages"
    );
}

#[tokio::test]
async fn who_names_the_holder_and_the_waiters_and_exits_with_1_if_there_is_none() {
    let server = RedisServer::start().await;
    let mut run = holder(&server, &["run", "job", "--kind", "fair"]).await;
    let waiter = start(
        &server,
        &[&["run", "job", "--kind", "fair"], &RUNNING[..]].concat(),
    );
    let held = distlock_tests::eventually(SOON, "a waiter", || async {
        let shown = output(&server, &["who", "job", "--json"]).await;
        (shown.status.code() == Some(0) && json(&shown)["waiter_total"] == 1).then(|| json(&shown))
    })
    .await;
    assert_eq!(
        (&held["primitive"], &held["is_held"]),
        (&"fair_lock".into(), &true.into())
    );
    let name = held["waiters"][0]["client"]["name"].as_str().unwrap();
    assert!(name.contains(&waiter.pid().to_string()), "{held:#}");
    let text = stdout(&output(&server, &["who", "job"]).await);
    assert!(
        text.starts_with("job: fair_lock, held\n  holder "),
        "{text}"
    );
    for lead in [
        "its machine and the id of its process",
        "when it is held, and by which line of the code: on the page of the console",
    ] {
        assert!(text.contains(lead), "no {lead:?}: {text}");
    }
    assert!(!text.contains("connected  no"), "{text}");
    assert!(
        text.contains("waiter 1") && text.contains(&waiter.pid().to_string()),
        "{text}"
    );

    drop(waiter);
    run.send("end");
    run.wait(SOON).await;
    let none = output(&server, &["who", "free"]).await;
    assert_eq!(none.status.code(), Some(1), "{}", stderr(&none));
    assert!(
        stdout(&none).contains("nobody holds it"),
        "{}",
        stdout(&none)
    );
}

/// An operator copies the key from the log of the program that waits for it.
#[tokio::test]
async fn key_without_the_prefix_of_its_program_is_not_found_and_a_line_says_how_to_find_it() {
    const SAID: &str = "give it as --key-prefix";
    let server = RedisServer::start().await;
    let _run = holder(&server, &["run", "order:42", "--key-prefix", "shop:"]).await;
    for command in [
        &["who", "order:42"] as &[&str],
        &["release", "order:42", "--yes"],
        &["ls", "order:*"],
    ] {
        let missed = output(&server, command).await;
        let status = i32::from(command[0] != "ls");
        assert_eq!(missed.status.code(), Some(status), "{}", stderr(&missed));
        assert!(stderr(&missed).contains(SAID), "{}", stderr(&missed));
    }
    let prefix = ["who", "order:42", "--key-prefix", "shop:"];
    let found = output(&server, &prefix).await;
    assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
    let free = ["who", "order:43", "--key-prefix", "shop:"];
    let free = output(&server, &free).await;
    assert_eq!(
        (free.status.code(), stderr(&free)),
        (Some(1), String::new())
    );
}

#[tokio::test]
async fn who_says_that_the_client_of_a_holder_that_was_killed_is_not_connected() {
    let server = RedisServer::start().await;
    let mut run = holder(&server, &["run", "job"]).await;
    run.kill();
    run.wait(SOON).await;
    let text = distlock_tests::eventually(SOON, "its connections end", || async {
        let text = stdout(&output(&server, &["who", "job"]).await);
        if text.contains("connected  no") {
            Ok(text)
        } else {
            Err(text)
        }
    })
    .await;
    assert!(text.contains("job: lock, held"), "{text}");
    assert!(
        text.contains("has probably ended") && text.contains("it ends in 2"),
        "{text}"
    );
    // Who may not list clients does not know it.
    let rights = ["ACL", "SETUSER", "default", "-client|list"];
    server.cli(&rights).await;
    let text = stdout(&output(&server, &["who", "job"]).await);
    assert!(!text.contains("connected"), "{text}");
}

#[tokio::test]
async fn key_of_control_characters_is_shown_as_text() {
    let server = RedisServer::start().await;
    let _run = holder(&server, &["run", "\x1b[2Jred"]).await;
    let text = stdout(&output(&server, &["ls"]).await);
    assert!(
        !text.contains('\x1b') && text.contains("[2Jred"),
        "{text:?}"
    );
}

#[tokio::test]
async fn user_without_the_right_to_scan_is_told_so() {
    let server = RedisServer::builder().without_default_user().start().await;
    server.set_user("shop", &rights::of(rights::LOCKS)).await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let denied = plain_output(["--url", &url, "ls", "shop:*"]).await;
    assert_eq!(denied.status.code(), Some(77), "{}", stderr(&denied));
    assert!(stderr(&denied).contains("scan"), "{}", stderr(&denied));
}

#[tokio::test]
async fn without_the_right_to_list_clients_the_right_is_named_and_the_rest_is_shown() {
    let server = RedisServer::builder().without_default_user().start().await;
    let mut lists = rights::of(rights::LOCKS);
    lists.extend(rights::of("looks at locks"));
    lists.retain(|right| *right != "+client|list");
    server.set_user("shop", &lists).await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let run = ["--url", &url, "run", "shop:job"];
    let mut run = Process::start(PROGRAM, run.into_iter().chain(RUNNING));
    run.expect("running", SOON).await;
    for args in [&["ls", "shop:*"] as &[&str], &["who", "shop:job"]] {
        let words = ["--url", &url].into_iter().chain(args.iter().copied());
        let shown = plain_output(words.clone()).await;
        assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
        assert!(
            stderr(&shown).contains("+client|list"),
            "{}",
            stderr(&shown)
        );
        // The owner, since its name is not known.
        assert!(stdout(&shown).contains("shop:job") && stdout(&shown).contains(":1"));
        let shown = json(&plain_output(words.chain(["--json"])).await);
        let lock = shown["locks"].get(0).unwrap_or(&shown);
        assert_eq!(lock["missing_rights"], serde_json::json!(["+client|list"]));
        assert_eq!(
            (&lock["is_held"], &lock["holders"][0]["client"]),
            (&true.into(), &Value::Null)
        );
    }
}

#[tokio::test]
async fn key_that_is_no_lock_is_said_to_be_none_and_a_pattern_without_a_match_lists_nothing() {
    let server = RedisServer::start().await;
    server.cli(&["SET", "text", "text"]).await;
    let shown = output(&server, &["who", "text"]).await;
    assert_eq!(shown.status.code(), Some(1), "{}", stderr(&shown));
    assert!(
        stdout(&shown).starts_with("text: other_data, nobody holds it"),
        "{}",
        stdout(&shown)
    );
    let shown = json(&output(&server, &["who", "text", "--json"]).await);
    assert_eq!(
        (&shown["primitive"], &shown["is_held"]),
        (&"other_data".into(), &false.into())
    );
    let run = output(
        &server,
        &["run", "text", "--wait", "0", "--", "echo", "started"],
    )
    .await;
    assert_eq!((run.status.code(), stdout(&run)), (Some(70), String::new()));
    let released = output(&server, &["release", "text", "--yes"]).await;
    assert_eq!(released.status.code(), Some(64), "{}", stderr(&released));
    assert!(
        stderr(&released).contains("no lock"),
        "{}",
        stderr(&released)
    );
    for pattern in ["*", "nothing*", "[", ""] {
        let listed = output(&server, &["ls", pattern, "--json"]).await;
        assert_eq!(
            listed.status.code(),
            Some(0),
            "{pattern}: {}",
            stderr(&listed)
        );
        assert_eq!(
            json(&listed),
            serde_json::json!({ "locks": [], "is_cut": false })
        );
        let watched = output(&server, &["watch", pattern]).await;
        assert_eq!(
            (watched.status.code(), stdout(&watched)),
            (Some(0), String::new())
        );
    }
}

#[tokio::test]
async fn each_kind_of_lock_is_released_by_force() {
    let server = RedisServer::start().await;
    for kind in ["lock", "fair", "fenced", "read", "write", "spin"] {
        let mut run = holder(&server, &["run", "job", "--lease", "6s", "--kind", kind]).await;
        let released = output(&server, &["release", "job", "--yes"]).await;
        assert_eq!(
            released.status.code(),
            Some(0),
            "{kind}: {}",
            stderr(&released)
        );
        assert_eq!(run.wait(SOON).await.code(), Some(79), "{kind}");
    }
    server.cli(&["SET", "text", "text"]).await;
    let refused = output(&server, &["release", "text", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
}

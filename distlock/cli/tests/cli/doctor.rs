//! `distlock doctor`.

use distlock_tests::eventually_eq;
use distlock_tests::rights::{self, PASSWORD};
use distlock_tests::server::free_port;
use serde_json::Value;

use super::*;

/// The verdict of a check. Of several findings of a check, the last one.
fn verdict(report: &Value, check: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().rev().find(|one| one["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check}: {report:#}"));
    assert_ne!(found["value"], "", "{found:#}");
    found["verdict"].as_str().unwrap().to_owned()
}

async fn report(args: &[&str], status: i32) -> Value {
    let output = doctor_output(&[args, &["doctor", "--json"]].concat()).await;
    assert_eq!(
        output.status.code(),
        Some(status),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["ok"], status == 0, "{report:#}");
    report
}

#[tokio::test]
async fn healthy_server_has_nothing_bad_and_a_server_that_evicts_has() {
    let server = RedisServer::builder().appendonly(true).start().await;
    // The default of a server, and not that of the harness.
    server
        .cli(&["CONFIG", "SET", "appendfsync", "everysec"])
        .await;
    let report_of = |status| {
        let url = server.url();
        async move { report(&["--url", &url], status).await }
    };
    let healthy = report_of(0).await;
    for check in [
        "version",
        "protocol",
        "rights",
        "messages",
        "undeclared",
        "eviction",
        "memory",
        "persistence",
        "replicas",
        "idle",
        "clock",
    ] {
        assert_eq!(verdict(&healthy, check), "ok", "{check}: {healthy:#}");
    }
    assert_ne!(verdict(&healthy, "latency"), "unknown");

    server.cli(&["CONFIG", "SET", "maxmemory", "100mb"]).await;
    server
        .cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    assert_eq!(verdict(&report_of(1).await, "eviction"), "bad");
    let text = output(&server, &["doctor"]).await;
    assert_eq!(text.status.code(), Some(1));
    assert!(
        stdout(&text).contains("BAD      eviction     maxmemory-policy allkeys-lru"),
        "{}",
        stdout(&text)
    );
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn failed_snapshot_is_bad_if_the_server_refuses_commands_for_it() {
    // Once there is a folder of that name, no file can be.
    let builder = RedisServer::builder().arg("--dbfilename", "blocked");
    let server = builder.start().await;
    std::fs::create_dir(server.dir().join("blocked")).unwrap();
    server.cli(&["BGSAVE"]).await;
    eventually_eq(SOON, "the snapshot", "err".to_owned(), || async {
        let mut info = server.info("persistence").await;
        info.remove("rdb_last_bgsave_status").unwrap_or_default()
    })
    .await;
    let url = server.url();
    // Without save points it refuses nothing.
    server.cli(&["CONFIG", "SET", "save", ""]).await;
    let free = report(&["--url", &url], 0).await;
    assert_eq!(verdict(&free, "persistence"), "warn");
    server.cli(&["CONFIG", "SET", "save", "3600 1"]).await;
    // A user who may not read the settings sees it as well.
    let rights = ["~*", "&*", "+@all", "-config"];
    server.set_user("shop", &rights).await;
    let blind = format!("redis://shop:{PASSWORD}@{}", server.addr());
    for url in [url, blind] {
        let refusing = report(&["--url", &url], 1).await;
        assert_eq!(verdict(&refusing, "persistence"), "bad");
    }
    let refused = output(&server, &["run", "job", "--wait", "0", "--", "true"]).await;
    assert_ne!(refused.status.code(), Some(0), "{}", stderr(&refused));
}

#[tokio::test]
async fn server_that_closes_idle_connections_before_clients_use_them_again_is_a_warning() {
    let server = RedisServer::start().await;
    for (timeout, expected) in [("0", "ok"), ("30", "warn"), ("300", "ok")] {
        server.cli(&["CONFIG", "SET", "timeout", timeout]).await;
        let found = report(&["--url", &server.url()], 0).await;
        assert_eq!(verdict(&found, "idle"), expected, "{timeout}: {found:#}");
    }
}

#[tokio::test]
async fn too_few_replicas_for_a_write_are_bad() {
    let server = RedisServer::start().await;
    let setting = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    server.cli(&setting).await;
    let lonely = report(&["--url", &server.url()], 1).await;
    assert_eq!(verdict(&lonely, "replicas"), "bad");
}

#[tokio::test]
async fn lines_that_the_user_may_not_ask_for_are_unknown() {
    let server = RedisServer::builder().without_default_user().start().await;
    server.set_user("shop", &rights::of(rights::LOCKS)).await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let words = ["--url", &url, "doctor", "--prefix", "shop:", "--json"];
    let shown = doctor_output(&words).await;
    assert_eq!(shown.status.code(), Some(0), "{}", stdout(&shown));
    assert!(!stdout(&shown).contains(PASSWORD));
    let report: Value = serde_json::from_str(&stdout(&shown)).unwrap();
    for check in ["eviction", "persistence", "replicas", "idle", "clock"] {
        assert_eq!(verdict(&report, check), "unknown", "{report:#}");
    }
    // Other primitives need more.
    assert_eq!(verdict(&report, "rights"), "warn", "{report:#}");
}

#[tokio::test]
async fn messages_and_undeclared_keys_that_are_refused_are_told_with_what_helps() {
    let server = RedisServer::builder().without_default_user().start().await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    for (missing, check, helps) in [
        (
            "+publish",
            "messages",
            "waiters look at their keys every 5 s",
        ),
        (
            "~{shop:*",
            "undeclared",
            "--default_lua_flags=allow-undeclared-keys",
        ),
    ] {
        let others: Vec<_> = rights::all()
            .into_iter()
            .filter(|right| *right != missing)
            .collect();
        server.set_user("shop", &others).await;
        let output = plain_output(["--url", &url, "doctor", "--prefix", "shop:", "--json"]).await;
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(verdict(&report, check), "warn", "{report:#}");
        let found = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["check"] == check);
        let advice = found.unwrap()["advice"].as_str().unwrap();
        assert!(advice.contains(helps), "{advice}");
    }
    assert!(server.keys().await.is_empty());
}

/// Rights that every user has, or that no script can be asked about.
const NOT_CHECKED: [&str; 2] = ["+eval", "+client|setinfo"];

#[tokio::test]
async fn each_right_of_the_guide_that_is_missing_is_named() {
    let server = RedisServer::builder().without_default_user().start().await;
    let all = rights::all();
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let args = ["--url", &url, "doctor", "--prefix", "shop:", "--json"];
    server.set_user("shop", &all).await;
    let complete = plain_output(args).await;
    let complete: Value = serde_json::from_str(&stdout(&complete)).unwrap();
    assert_eq!(verdict(&complete, "rights"), "ok", "{complete:#}");

    let optional = rights::optional();
    let commands = all.iter().filter(|right| right.starts_with('+'));
    for right in commands.filter(|right| !optional.contains(right) && !NOT_CHECKED.contains(right))
    {
        let others: Vec<_> = all.iter().filter(|other| *other != right).collect();
        server.set_user("shop", &others).await;
        let output = plain_output(args).await;
        let report: Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|error| panic!("{right}: {error}: {}", stderr(&output)));
        let checks = report["checks"].as_array().unwrap();
        let named = checks.iter().any(|one| {
            let value = one["value"].as_str().unwrap();
            one["check"] == "rights" && value.split(' ').any(|word| word == *right)
        });
        assert!(named, "without {right}: {report:#}");
    }
}

#[tokio::test]
async fn server_that_is_away_is_a_bad_connection() {
    let url = format!("redis://:hush@127.0.0.1:{}", free_port());
    let away = report(&["--url", &url, "--connect-timeout", "200ms"], 69).await;
    assert_eq!(verdict(&away, "connection"), "bad");
    assert!(!away.to_string().contains("hush"));
}

#[tokio::test]
async fn user_of_some_keys_is_not_accused_without_the_prefix_and_with_a_wrong_one_the_key_is_named()
{
    let server = RedisServer::builder().without_default_user().start().await;
    server.set_user("shop", &rights::all()).await;
    let url = format!("redis://shop:{PASSWORD}@{}", server.addr());
    let without = report(&["--url", &url], 0).await;
    assert_eq!(verdict(&without, "rights"), "unknown", "{without:#}");
    let rights_of = |report: &Value| -> String {
        let checks = report["checks"].as_array().unwrap();
        let rights = checks.iter().filter(|one| one["check"] == "rights");
        rights.map(Value::to_string).collect()
    };
    let said = rights_of(&without);
    assert!(said.contains("--prefix") && !said.contains('+'), "{said}");
    let of_url = report(&["--url", &format!("{url}?key_prefix=shop%3A")], 0).await;
    assert_eq!(verdict(&of_url, "rights"), "ok", "{of_url:#}");

    let wrong = plain_output(["--url", &url, "doctor", "--prefix", "shpo:", "--json"]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", stderr(&wrong));
    let said = rights_of(&serde_json::from_str(&stdout(&wrong)).unwrap());
    assert!(
        said.contains("~shpo:distlock-doctor") && !said.contains('+'),
        "{said}"
    );

    // Channels of a prefix alone, and all keys.
    let mut keys: Vec<_> = rights::all();
    keys.retain(|right| !right.starts_with('~'));
    keys.push("~*");
    server.set_user("shop", &keys).await;
    let channels = report(&["--url", &url], 0).await;
    assert_eq!(verdict(&channels, "rights"), "unknown", "{channels:#}");
}

//! Losses that the server tells at once, by `CLIENT TRACKING`.
//!
//! All leases here are so long that no renewal comes within a test, unless it says so: what is told, is told by the server.

mod costs;
mod replica;

use std::time::Duration;

use distlock::{Client, Guard};
use distlock_tests::rights::PASSWORD;
use distlock_tests::{
    Flow, RedisCluster, RedisServer, Select, SentinelSet, Way, eventually, eventually_eq,
};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::{SOON, client_of_lease, ms};

/// A third of it is far more than a test takes.
const LONG: Duration = Duration::from_secs(300);

/// How many keys the server tracks.
async fn tracked_keys(server: &RedisServer) -> u64 {
    let stats = server.info("stats").await;
    stats["tracking_total_keys"].parse().unwrap()
}

/// Completes when the server tracks so many keys.
async fn tracked(server: &RedisServer, keys: u64) {
    eventually_eq(SOON, "tracked keys", keys, || tracked_keys(server)).await;
}

/// Completes when each of these holds was told as lost.
async fn told(guards: &[Guard], how: &str) {
    let since = Instant::now();
    let all = join_all(guards.iter().map(Guard::lost));
    let all = timeout(SOON, all).await;
    assert!(all.is_ok(), "{how}: not told within {SOON:?}");
    println!(
        "{how}: {} holds were told within {:?}",
        guards.len(),
        since.elapsed()
    );
}

/// What the client has sent to have keys tracked, and to read them.
async fn sent(server: &RedisServer) -> u64 {
    // An `EXISTS` follows each of these; the count of that command has those of scripts as well.
    let mut calls = server.command_calls("client|caching").await;
    for command in ["client|tracking", "client|caching", "evalsha", "eval"] {
        calls += server.command_calls(command).await;
    }
    calls
}

/// A client that holds a key of each kind, all of them older than a second.
async fn holds_of_each_kind(client: &Client) -> Vec<Guard> {
    let seats = client.expirable_semaphore("seats");
    seats.try_set_permits(5).await.unwrap();
    let rw = client.rw_lock("written");
    vec![
        client.lock("lock").acquire().await.unwrap(),
        client.fair_lock("fair").acquire().await.unwrap(),
        client.spin_lock("spin").acquire().await.unwrap(),
        client.non_reentrant_lock("once").acquire().await.unwrap(),
        rw.write().acquire().await.unwrap(),
        client.rw_lock("read").read().acquire().await.unwrap(),
    ]
}

#[tokio::test]
async fn hold_whose_key_was_deleted_is_told_long_before_the_next_renewal_for_each_kind() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let guards = holds_of_each_kind(&client).await;
    let fenced = client.fenced_lock("fenced").acquire().await.unwrap();
    let permit = client.expirable_semaphore("seats").acquire().await.unwrap();
    let keys = [
        "lock",
        "fair",
        "spin",
        "once",
        "written",
        "read",
        "fenced",
        "{seats}:timeout",
    ];
    tracked(&server, keys.len() as u64).await;
    server.cli(&[&["DEL"][..], &keys].concat()).await;
    told(&guards, "DEL").await;
    timeout(SOON, fenced.lost()).await.expect("fenced");
    timeout(SOON, permit.lost()).await.expect("permit");
}

#[tokio::test]
async fn hold_is_told_as_lost_however_its_key_goes() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    for (how, command) in [
        ("UNLINK", &["UNLINK", "k"][..]),
        ("FLUSHALL", &["FLUSHALL"]),
        ("FLUSHDB", &["FLUSHDB"]),
        ("RENAME", &["RENAME", "k", "other"]),
        ("SET", &["SET", "k", "v"]),
        (
            "HDEL",
            &[
                "EVAL",
                "return redis.call('HDEL', KEYS[1], redis.call('HKEYS', KEYS[1])[1])",
                "1",
                "k",
            ],
        ),
        (
            "another owner",
            &[
                "EVAL",
                "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a:1', '1')",
                "1",
                "k",
            ],
        ),
        (
            "the end of its lease in the server",
            &["PEXPIRE", "k", "20"],
        ),
    ] {
        server.cli(&["DEL", "k"]).await;
        let guard = client.lock("k").acquire().await.unwrap();
        tracked(&server, 1).await;
        server.cli(command).await;
        told(&[guard], how).await;
    }
}

#[tokio::test]
async fn hold_that_another_client_frees_by_force_is_told() {
    let server = RedisServer::start().await;
    let (holder, other) = (
        client_of_lease(&server, LONG).await,
        client_of_lease(&server, LONG).await,
    );
    let guard = holder.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    assert!(other.lock("k").force_release().await.unwrap());
    told(&[guard], "force_release").await;
    // The next holder is told of nothing.
    let next = holder.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    assert!(next.is_held());
    next.release().await.unwrap();
}

#[tokio::test]
async fn hold_that_its_own_client_frees_by_force_is_told() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let seats = client.expirable_semaphore("seats");
    assert!(seats.try_set_permits(2).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    tracked(&server, 2).await;
    // The server tells a client nothing of its own writes.
    assert!(client.lock("k").force_release().await.unwrap());
    told(&[guard], "force_release by the same client").await;
    assert!(seats.delete().await.unwrap());
    timeout(SOON, permit.lost()).await.expect("told");
}

/// The attempt takes an ended permit back, which is a write of its own client.
#[tokio::test]
async fn holder_of_a_permit_is_told_after_a_refused_attempt_of_its_own_client_has_written_to_the_key()
 {
    const PERMITS: &str = "{seats}:timeout";
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let seats = client.expirable_semaphore("seats");
    assert!(seats.try_set_permits(2).await.unwrap());
    let old = seats.acquire().await.unwrap();
    tracked(&server, 1).await;
    server
        .cli(&["ZADD", PERMITS, "1", "0123456789abcdef"])
        .await;
    // It was read again, since another client had changed it.
    tracked(&server, 1).await;
    assert!(seats.try_acquire_many(3).await.unwrap().is_none());
    let left: u64 = server.try_cli(&["ZCARD", PERMITS]).await.unwrap();
    assert_eq!(left, 1, "the ended permit is still there");
    tracked(&server, 1).await;
    server.cli(&["DEL", PERMITS]).await;
    timeout(SOON, old.lost()).await.expect("told");
}

/// The others are read with it by one command.
#[tokio::test]
async fn holds_are_told_beside_one_whose_key_the_user_may_not_access_any_more() {
    const OTHERS: usize = 10;
    let server = RedisServer::start().await;
    server.set_user("shop", &["+@all", "&*", "~*"]).await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let builder = builder.credentials("shop", PASSWORD);
    let client = builder.connect(&server.url()).await.unwrap();
    let denied = client.lock("denied").acquire().await.unwrap();
    let mut guards = Vec::new();
    for n in 0..OTHERS {
        guards.push(client.lock(format!("k{n}")).acquire().await.unwrap());
    }
    tracked(&server, OTHERS as u64 + 1).await;
    server.set_user("shop", &["+@all", "&*", "~k*"]).await;
    server.cli(&["FLUSHALL"]).await;
    told(&guards, "FLUSHALL").await;
    assert!(denied.is_held());
    let refused = || async { server.denied_to("shop").await.contains("denied") };
    eventually(SOON, "a denial", refused).await;
}

#[tokio::test]
async fn hold_that_the_server_evicts_is_told() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let guard = client.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    server
        .cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"])
        .await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    eventually(SOON, "an eviction", || async {
        server.info("stats").await["evicted_keys"] != "0"
    })
    .await;
    told(&[guard], "eviction").await;
}

#[tokio::test]
async fn many_holds_that_are_deleted_at_once_are_all_told() {
    const HOLDS: usize = 1_000;
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LONG).await;
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        guards.push(client.lock(format!("k{n}")).acquire().await.unwrap());
    }
    let before = sent(&server).await;
    tracked(&server, HOLDS as u64).await;
    let asked = sent(&server).await - before;
    assert!(
        asked <= HOLDS as u64 / 10,
        "{asked} commands to track {HOLDS} holds"
    );
    let (kept, gone) = guards.split_at(HOLDS / 2);
    let names: Vec<String> = (HOLDS / 2..HOLDS).map(|n| format!("k{n}")).collect();
    for name in &names {
        server.cli(&["DEL", name]).await;
    }
    told(gone, "DEL of each").await;
    assert!(kept.iter().all(Guard::is_held));
}

/// Each family of kinds has a script of its own that renews.
#[tokio::test]
async fn renewals_of_each_family_keep_their_keys_tracked() {
    const LEASE: Duration = Duration::from_secs(9);
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let seats = client.expirable_semaphore("seats");
    assert!(seats.try_set_permits(1).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    let guards = [
        client.lock("lock").acquire().await.unwrap(),
        client.rw_lock("read").read().acquire().await.unwrap(),
        client.rw_lock("write").write().acquire().await.unwrap(),
    ];
    tracked(&server, 4).await;
    // Two renewals of each, all in one rhythm.
    let before = server.command_calls("pexpire").await;
    let renewed = || async {
        server.command_calls("pexpire").await >= before + 6
            && server.command_calls("zadd").await >= 3
    };
    eventually(3 * SOON, "two renewals of each", renewed).await;
    // Without a read behind the write, none of them would be. There is one more, that a reader's renewal looks at.
    let tracked = || async { tracked_keys(&server).await >= 4 };
    eventually(SOON, "tracked keys", tracked).await;
    assert!(guards.iter().all(Guard::is_held) && permit.is_held());
}

// A renewal comes every 3 s, and must not come between a deletion and its loss.
in_real_time!(
    ms(500);
    renewal_keeps_the_key_tracked_and_so_does_another_connection,
);

async fn renewal_keeps_the_key_tracked_and_so_does_another_connection() {
    const LEASE: Duration = Duration::from_secs(9);
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, LEASE).await;
    let guard = client.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    // A renewal is a write: without a read after it, nothing would be tracked.
    let before = server.pttl("k").await;
    eventually(SOON, "a renewal", || async {
        server.pttl("k").await > before
    })
    .await;
    tracked(&server, 1).await;
    server.kill_clients("normal").await;
    eventually(SOON, "a new connection", || async {
        let lines = server.client_list().await;
        let ours = lines.iter().filter(|line| !line.is_harness());
        ours.filter(|line| line.field("flags").contains('t'))
            .count()
            == 1
    })
    .await;
    tracked(&server, 1).await;
    // The renewal after the reconnection was the last one for 3 s. Each renewal begins with this command.
    let renewals = server.command_calls("hget").await;
    server.cli(&["DEL", "k"]).await;
    told(&[guard], "DEL after a new connection").await;
    let later = server.command_calls("hget").await;
    assert_eq!(later, renewals, "a renewal has found the loss");
}

#[tokio::test]
async fn hold_on_the_master_of_a_service_is_told() {
    let set = SentinelSet::shared().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let client = builder.connect(&set.url()).await.unwrap();
    let key = "tracking:sentinel";
    let guard = client.lock(key).acquire().await.unwrap();
    let master = set.server(set.master().await);
    eventually(SOON, "tracked", || async { tracked_keys(master).await > 0 }).await;
    master.cli(&["DEL", key]).await;
    told(&[guard], "DEL on a master").await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a set with Sentinels takes time"]
async fn hold_whose_service_has_another_master_is_tracked_by_that() {
    let set = SentinelSet::start().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let client = builder.connect(&set.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let old = set.master().await;
    tracked(set.server(old), 1).await;
    set.wait_until_all_have("k").await;
    let new = set.server(set.fail_over().await);
    eventually_eq(3 * SOON, "tracked keys", 1, || tracked_keys(new)).await;
    assert!(guard.is_held());
    new.cli(&["DEL", "k"]).await;
    told(&[guard], "DEL on the new master").await;
}

#[tokio::test]
async fn holds_on_each_node_of_a_cluster_are_told() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    let mut keys = Vec::new();
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "tracking:").await;
        guards.push(client.lock(&key).acquire().await.unwrap());
        keys.push(key);
    }
    for node in 0..cluster.size() {
        tracked(cluster.node(node), 1).await;
    }
    for (node, key) in keys.iter().enumerate() {
        cluster.node(node).cli(&["DEL", key]).await;
    }
    told(&guards, "DEL on each node").await;
}

#[tokio::test]
async fn hold_whose_slot_has_moved_is_tracked_by_the_new_node() {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let key = cluster.key_at(0, "moving:").await;
    let guard = client.lock(&key).acquire().await.unwrap();
    tracked(cluster.node(0), 1).await;
    let slot = cluster.slot_of(&key).await;
    cluster.migrate(slot, 1).await;
    // The next command for the slot shows the move: a look by anybody.
    assert!(client.lock(&key).is_locked().await.unwrap());
    tracked(cluster.node(1), 1).await;
    assert!(guard.is_held());
    cluster.node(1).cli(&["DEL", &key]).await;
    told(&[guard], "DEL on the new node").await;
}

#[tokio::test]
async fn node_that_answers_no_read_delays_none_of_another_node() {
    // As many reads of a hundred keys as a client sends to one server at once, and one more.
    const KEYS: u64 = 1_700;
    let builder = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = builder.start().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    // Without an answer, a read lasts for longer than this test.
    let builder = builder.response_timeout(4 * SOON);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let tag = cluster.key_at(0, "silent:").await;
    let silent = (0..KEYS).map(|n| {
        client
            .lock(format!("{{{tag}}}:{n}"))
            .acquire()
            .into_future()
    });
    let _silent = join_all(silent).await;
    let key = cluster.key_at(1, "told:").await;
    let guard = client.lock(&key).acquire().await.unwrap();
    tracked(cluster.node(0), KEYS).await;
    tracked(cluster.node(1), 1).await;
    let stall = cluster
        .proxy(0)
        .flow(Select::COMMANDS, Way::Up, Flow::Stall);
    // The client reads all its keys.
    cluster.node(0).cli(&["FLUSHALL"]).await;
    stall.reach(1, SOON).await;
    cluster.node(1).cli(&["DEL", &key]).await;
    told(&[guard], "DEL on the other node").await;
    stall.lift();
}

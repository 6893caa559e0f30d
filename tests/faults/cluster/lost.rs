//! Rows 2, 3, 42, 49 and 56 on a cluster: answers, data and shards that are lost.

use std::time::Duration;

use distlock::{Client, PubSub};
use distlock_tests::{RedisCluster, Select, Which, eventually, eventually_eq};
use tokio::time::{sleep, timeout};

use super::load::{Load, What};
use super::{clients, free, redirects};
use crate::row::{Row, rows};
use crate::support::{SOON, assert_told_of_one, client_with, ms};

async fn f02_acquire_whose_reply_is_lost_counts_once_on_a_cluster(row: &Row) {
    let (cluster, client) = behind_proxies().await;
    for n in 0..6 {
        let key = format!("order:{n}");
        let node = warm_up(&cluster, &client, &key).await;
        let eaten = cluster
            .proxy(node)
            .eat_reply(Select::COMMANDS, Which::NEXT.containing(&key));
        let guard = client.lock(&key).acquire().wait(SOON).await.unwrap();
        assert_eq!(eaten.hits(), 1, "grants that nobody heard of");
        row.injected("reply eaten", eaten.hits());
        let counts = cluster.node(node).hgetall(&key).await;
        let once = [(guard.owner().to_string(), String::from("1"))].into();
        assert_eq!(counts, once);
        guard.release().await.unwrap();
    }
    free(&cluster, &[client]).await;
}

async fn f03_release_whose_reply_is_lost_is_no_error_on_a_cluster(row: &Row) {
    let (cluster, client) = behind_proxies().await;
    for n in 0..6 {
        let key = format!("order:{n}");
        let node = warm_up(&cluster, &client, &key).await;
        let guard = client.lock(&key).acquire().await.unwrap();
        let eaten = cluster
            .proxy(node)
            .eat_reply(Select::COMMANDS, Which::NEXT.containing(&key));
        guard.release().await.unwrap();
        assert_eq!(eaten.hits(), 1, "releases that nobody heard of");
        row.injected("reply eaten", eaten.hits());
    }
    free(&cluster, &[client]).await;
}

/// A cluster whose client takes a command for unanswered after 300 ms.
async fn behind_proxies() -> (RedisCluster, Client) {
    let builder = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = builder.start().await;
    let patience = |builder: distlock::Builder| builder.response_timeout(ms(300));
    let client = client_with(&cluster.url(), patience).await;
    (cluster, client)
}

/// The node that has a key. The client is connected to it, and it knows the scripts.
async fn warm_up(cluster: &RedisCluster, client: &Client, key: &str) -> usize {
    let guard = client.lock(key).acquire().await.unwrap();
    guard.release().await.unwrap();
    cluster.node_of(cluster.slot_of(key).await).await
}

async fn f42_holders_are_told_soon_when_a_node_comes_back_empty(row: &Row) {
    // Far longer than the test waits: no renewal finds the loss.
    const LONG: Duration = ms(90_000);
    let builder = RedisCluster::builder().replicas(false);
    // The node is back before the others count it as failed.
    let mut cluster = builder.arg("--cluster-node-timeout", "60000").start().await;
    let client = client_with(&cluster.url(), |builder| builder.watchdog_timeout(LONG)).await;
    let (lost, kept) = (cluster.key_at(0, "a:").await, cluster.key_at(1, "b:").await);
    let lost = client.lock(lost).acquire().await.unwrap();
    let kept = client.lock(kept).acquire().await.unwrap();
    cluster.node_mut(0).restart().await;
    row.injected("node killed that loses its data", 1);
    assert_told_of_one(row, lost, kept).await;
    free(&cluster, &[client]).await;
}

/// Without the shard, all other nodes refuse all commands.
async fn f49_shard_that_is_gone_costs_the_others_no_hold_and_no_error(row: &Row) {
    let builder = RedisCluster::builder().replicas(false);
    let mut cluster = builder.arg("--cluster-node-timeout", "1000").start().await;
    let patient = |builder: distlock::Builder| builder.unavailable_after(SOON * 6);
    let client = client_with(&cluster.url(), patient).await;
    let holder = &clients(&cluster, 1).await[0];
    // With the lease of 30 s that users have.
    let key = cluster.key_at(1, "held:").await;
    let guard = holder.lock(&key).acquire().await.unwrap();
    let load = Load::start(std::slice::from_ref(&client), "f49:", What::Locks);
    load.goes_on(50).await;
    cluster.node_mut(0).kill();
    let state = async |cluster: &RedisCluster| {
        let info: String = cluster.node(1).try_cli(&["CLUSTER", "INFO"]).await.unwrap();
        if info.contains("cluster_state:ok") {
            "ok"
        } else {
            "fail"
        }
    };
    eventually_eq(SOON, "the state of the cluster", "fail", || state(&cluster)).await;
    row.injected("shard gone", 1);
    let refusals = async || {
        let errors = cluster.node(1).info("errorstats").await;
        if errors.contains_key("errorstat_CLUSTERDOWN") {
            Ok(())
        } else {
            Err(format!("{errors:?}"))
        }
    };
    // So the test is not one of a cluster that went on.
    eventually(SOON, "a command to be refused", refusals).await;
    assert!(guard.is_held());
    cluster.node_mut(0).restart().await;
    eventually_eq(SOON * 2, "the state of the cluster", "ok", || {
        state(&cluster)
    })
    .await;
    load.goes_on(50).await;
    load.end_after_a_loss().await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let again = timeout(SOON, client.lock(&key).acquire().into_future()).await;
    again.expect("granted").unwrap().release().await.unwrap();
    free(&cluster, &[client, holder.clone()]).await;
}

/// The master still answers with its map, in which it has its slots. The client is connected to no other node.
async fn f49_master_that_is_cut_off_from_the_others_is_left_for_its_replica(row: &Row) {
    let cluster = RedisCluster::start().await;
    let patient = |builder: distlock::Builder| builder.unavailable_after(SOON * 6);
    let client = client_with(&cluster.url(), patient).await;
    let key = cluster.key_at(0, "cut:off:").await;
    let lock = client.lock(&key);
    lock.acquire().await.unwrap().release().await.unwrap();
    cluster.cut_off(0).await;
    row.injected("master cut off", 1);
    let guard = row.timeout(SOON, lock.acquire().into_future()).await;
    let guard = guard.expect("granted by the replica").unwrap();
    guard.release().await.unwrap();
    let errors = cluster.node(0).info("errorstats").await;
    assert!(errors.contains_key("errorstat_CLUSTERDOWN"), "{errors:?}");
}

/// The former master sends the commands on the slot elsewhere, as one does that gives the slot away with its data. It ends no
/// subscription to plain messages, so the client hears of the change by these redirects.
async fn f56_latch_that_the_promoted_node_lacks_is_told(row: &Row) {
    let cluster = RedisCluster::start().await;
    let plain = |builder: distlock::Builder| {
        let builder = builder.unavailable_after(SOON * 6);
        builder.pub_sub(PubSub::Plain)
    };
    let client = client_with(&cluster.url(), plain).await;
    let key = cluster.key_at(0, "jobs:").await;
    let (master, replicas) = (cluster.node(0), cluster.replicas_of(0).await);
    let replica = cluster.node(replicas[0]);
    // It does not get in at its master any more.
    for (setting, value) in [("masteruser", "nobody"), ("masterauth", "wrong")] {
        replica.cli(&["CONFIG", "SET", setting, value]).await;
    }
    master.kill_clients("replica").await;
    let latch = client.count_down_latch(&key);
    assert!(latch.try_set_count(1).await.unwrap());
    let asked = master.command_calls("get").await;
    let waiting = tokio::spawn(latch.wait().into_future());
    // Each look asks for the count and for the mark. It looks again once it listens.
    eventually(SOON, "two looks", || async {
        master.command_calls("get").await >= asked + 4
    })
    .await;
    let other = client.lock(format!("{{{key}}}:other"));
    let load = tokio::spawn(async move {
        loop {
            // It may fail while the slot has no owner.
            let _is_locked = other.is_locked().await;
            sleep(ms(1)).await;
        }
    });
    let before = redirects(&cluster).await;
    replica.cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    row.injected("failover to a replica that lacks a latch", 1);
    let told = row.timeout(SOON, waiting).await.expect("told");
    load.abort();
    assert!(told.unwrap().unwrap_err().is_lost());
    assert!(
        redirects(&cluster).await > before,
        "nobody was sent elsewhere"
    );
}

rows! {
    Threads, left to "engines":
        f49_shard_that_is_gone_costs_the_others_no_hold_and_no_error;
    Real:
        f56_latch_that_the_promoted_node_lacks_is_told,
        f49_master_that_is_cut_off_from_the_others_is_left_for_its_replica,
        f02_acquire_whose_reply_is_lost_counts_once_on_a_cluster,
        f03_release_whose_reply_is_lost_is_no_error_on_a_cluster,
        f42_holders_are_told_soon_when_a_node_comes_back_empty;
}

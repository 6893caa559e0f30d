//! Row 93: nodes that leave a cluster, all of them, while a client is idle.

use std::io;

use distlock::test_util::connections;
use distlock::{Builder, Client, Credentials};
use distlock_tests::{Proxy, RedisCluster, Select, eventually_eq};
use tokio::time::sleep;

use super::free;
use crate::row::{Row, rows};
use crate::support::{SOON, client_with, ms};

/// The masters that a cluster begins with.
const MASTERS: usize = 3;

/// Has a replica take the place of each master. Returns the new ones.
async fn replace_all_masters(cluster: &RedisCluster) -> Vec<usize> {
    let mut masters = Vec::new();
    for old in 0..MASTERS {
        masters.push(cluster.fail_over(old).await);
    }
    masters
}

/// Whether the client still has something of these nodes.
fn knows(client: &Client, nodes: &[String]) -> bool {
    let mut all = connections(client).into_iter();
    all.any(|seen| nodes.iter().any(|node| seen.name.ends_with(node)))
}

/// Acquires a lock at each of these nodes.
async fn acquire_at(client: &Client, cluster: &RedisCluster, masters: &[usize]) {
    for node in masters {
        let key = cluster.key_at(*node, "replaced:").await;
        let guard = client.lock(&key).acquire().wait(SOON).await;
        let guard = guard.unwrap_or_else(|error| panic!("node {node}: {error}"));
        guard.release().await.unwrap();
    }
}

async fn f93_idle_clients_learn_of_the_nodes_that_replace_all_that_they_know(row: &Row) {
    let mut cluster = RedisCluster::start().await;
    let url = format!("redis+cluster://{}", cluster.node(0).addr());
    let idle = client_with(&url, |builder| builder).await;
    let holder = client_with(&url, |builder| builder).await;
    let key = cluster.key_at(1, "held:").await;
    let guard = holder.lock(&key).acquire().await.unwrap();
    let masters = replace_all_masters(&cluster).await;
    let old: Vec<String> = (0..MASTERS)
        .map(|at| cluster.node(at).addr().to_string())
        .collect();
    for (what, client) in [("nothing", &idle), ("renewals", &holder)] {
        let what = format!("old nodes known to a client that sends {what}");
        eventually_eq(SOON, &what, false, async || knows(client, &old)).await;
    }
    for old in 0..MASTERS {
        cluster.node_mut(old).kill();
        row.injected("node gone", 1);
    }
    acquire_at(&idle, &cluster, &masters).await;
    acquire_at(&holder, &cluster, &masters).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    free(&cluster, &[idle, holder]).await;
}

/// The address in the URL leads to another node by then, as a name does whose records have changed. Returns how many connections
/// were made to that address since then.
async fn finds_a_node_at_the_address_of_its_url(
    row: &Row,
    set: impl FnOnce(Builder) -> Builder,
) -> u64 {
    let mut cluster = RedisCluster::builder().proxies(true).start().await;
    let seed = Proxy::start(cluster.node(0).addr()).await;
    let url = format!("redis+cluster://{}", seed.addr());
    let client = client_with(&url, set).await;
    acquire_at(&client, &cluster, &[0, 1, 2]).await;
    // From here on it hears of nothing.
    let mut refused = vec![seed.refuse()];
    refused.extend((0..MASTERS).map(|at| cluster.proxy(at).refuse()));
    let mut cut = seed.cut(Select::ALL);
    cut += (0..MASTERS)
        .map(|at| cluster.proxy(at).cut(Select::ALL))
        .sum::<usize>();
    row.injected("connection cut", cut as u64);
    let masters = replace_all_masters(&cluster).await;
    for old in 0..MASTERS {
        cluster.node_mut(old).kill();
        row.injected("node gone", 1);
    }
    seed.set_target(cluster.node(masters[0]).addr());
    let before = seed.accepted();
    refused.remove(0).lift();
    acquire_at(&client, &cluster, &masters).await;
    let connections = seed.accepted() - before;
    free(&cluster, &[client]).await;
    connections
}

async fn f93_client_that_knows_no_node_any_more_finds_one_at_the_address_of_its_url(row: &Row) {
    finds_a_node_at_the_address_of_its_url(row, |builder| builder).await;
}

/// Each connection takes longer than a node has to answer with the map.
async fn f93_client_whose_connections_take_long_finds_a_node_at_the_address_of_its_url(row: &Row) {
    let slow = || async {
        sleep(ms(700)).await;
        // Any password is that of a user who needs none.
        Ok::<_, io::Error>(Credentials::new("default", "any"))
    };
    let set = |builder: Builder| builder.credentials_from(slow);
    let connections = finds_a_node_at_the_address_of_its_url(row, set).await;
    assert!(connections < 10, "{connections} connections");
}

rows! {
    Real:
        f93_idle_clients_learn_of_the_nodes_that_replace_all_that_they_know,
        f93_client_that_knows_no_node_any_more_finds_one_at_the_address_of_its_url,
        f93_client_whose_connections_take_long_finds_a_node_at_the_address_of_its_url;
}

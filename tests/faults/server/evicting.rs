//! Row 51: a server that deletes keys when its memory is full, to which a client comes later than to the first one.

use distlock::Client;
use distlock_tests::log::lines_with;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{
    ByNames, Names, RedisCluster, RedisServer, eventually, eventually_eq, lock_once,
};

use crate::row::{Row, rows};
use crate::support::{SOON, ms};

const NAME: &str = "evicting.test";

/// Has a server delete keys when its memory is full.
async fn evict(server: &RedisServer) {
    for (setting, value) in [("maxmemory", "50mb"), ("maxmemory-policy", "allkeys-lru")] {
        server.cli(&["CONFIG", "SET", setting, value]).await;
    }
}

/// How many warnings of the policy of this server there are.
fn warnings(server: &RedisServer) -> usize {
    lines_with(&["WARN", &server.addr().to_string(), "maxmemory-policy"])
}

/// Completes when the log warns of this server, which it does once, also after the connections have been replaced.
async fn warned_once(client: &Client, server: &RedisServer, key: &str) {
    eventually_eq(SOON, "warnings", 1, || async { warnings(server) }).await;
    assert!(server.kill_clients("normal").await > 0);
    let again = || async {
        let acquired = client.lock(key).acquire().wait(SOON).await;
        acquired.map(drop).map_err(|error| error.to_string())
    };
    eventually(SOON, "a new connection", again).await;
    assert_eq!(warnings(server), 1);
}

async fn f51_server_that_a_name_leads_to_later_is_warned_of_once(row: &Row) {
    let [old, new] = [RedisServer::start().await, RedisServer::start().await];
    evict(&new).await;
    let names = Names::new();
    names.lead(NAME, [old.addr()]);
    let builder = Client::builder().by_names(&names).look_up_interval(ms(50));
    let client = builder.connect("redis://evicting.test").await.unwrap();
    lock_once(&client, "k").await;
    names.lead(NAME, [new.addr()]);
    warned_once(&client, &new, "k").await;
    assert_eq!(warnings(&old), 0);
    row.injected("policy that evicts", 1);
}

async fn f51_master_after_a_failover_is_warned_of_once(row: &Row) {
    let set = SentinelSet::start().await;
    let client = Client::connect(&set.url()).await.unwrap();
    lock_once(&client, "k").await;
    let old = set.master().await;
    for index in (0..3).filter(|index| *index != old) {
        evict(set.server(index)).await;
    }
    let new = set.server(set.fail_over().await);
    warned_once(&client, new, "k").await;
    assert_eq!(warnings(set.server(old)), 0);
    row.injected("failover to a server that evicts", 1);
}

async fn f51_each_node_of_a_cluster_that_evicts_is_warned_of_once(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    for node in 0..cluster.size() {
        evict(cluster.node(node)).await;
    }
    let client = Client::connect(&cluster.url()).await.unwrap();
    for node in 0..cluster.size() {
        let key = cluster.key_at(node, "k:").await;
        let guard = client.lock(&key).acquire().wait(SOON).await.unwrap();
        guard.release().await.unwrap();
        warned_once(&client, cluster.node(node), &key).await;
        row.injected("policy that evicts", 1);
    }
}

rows! {
    Real:
        f51_server_that_a_name_leads_to_later_is_warned_of_once,
        f51_master_after_a_failover_is_warned_of_once,
        f51_each_node_of_a_cluster_that_evicts_is_warned_of_once;
}

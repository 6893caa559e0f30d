//! Clusters: their verbs, their users, their proxies, and their end.

use std::time::Instant;

use distlock_tests::proxy::Role;
use distlock_tests::{RedisCluster, RedisServer, eventually};
use redis::{AsyncTypedCommands, ErrorKind, RedisResult, ServerErrorKind};

use super::{SOON, ends, has_keys, took};

fn pids(cluster: &RedisCluster) -> Vec<u32> {
    let nodes = 0..cluster.size();
    nodes.map(|index| cluster.node(index).pid()).collect()
}

/// Three masters, which is quicker where no replica is needed.
async fn masters() -> RedisCluster {
    RedisCluster::builder().replicas(false).start().await
}

/// The keys of a slot that are at a node.
async fn keys_in(cluster: &RedisCluster, node: usize, slot: usize) -> Vec<String> {
    let words = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"];
    let mut keys: Vec<String> = cluster.node(node).try_cli(&words).await.unwrap();
    keys.sort_unstable();
    keys
}

/// What a server answered in place of a value.
fn refusal<T>(answer: RedisResult<T>) -> ServerErrorKind {
    match answer.err().expect("a refusal").kind() {
        ErrorKind::Server(kind) => kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn started_cluster_serves_all_slots_and_each_master_has_a_replica() {
    let start = Instant::now();
    let (cluster, small) = tokio::join!(RedisCluster::start(), masters());
    took("start of two clusters side by side", start);
    assert_eq!((cluster.size(), small.size()), (6, 3));
    for master in 0..3 {
        let key = cluster.key_at(master, "key").await;
        cluster.node(master).cli(&["SET", &key, "1"]).await;
        assert_eq!(cluster.replicas_of(master).await, [master + 3]);
        has_keys(cluster.node(master + 3), &[&key]).await;
        let key = small.key_at(master, "key").await;
        small.node(master).cli(&["SET", &key, "1"]).await;
        let other = small
            .node((master + 1) % 3)
            .try_cli::<()>(&["GET", &key])
            .await;
        assert_eq!(refusal(other), ServerErrorKind::Moved);
        assert!(small.replicas_of(master).await.is_empty());
    }
    let slots: Vec<usize> = cluster.slots_of(1).await;
    assert_eq!((slots[0], slots.len()), (5461, 5461));
    let hosts: Vec<_> = (0..3)
        .map(|node| small.node(node).addr().to_string())
        .collect();
    assert_eq!(small.url(), format!("redis+cluster://{}", hosts.join(",")));
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn migrated_slot_is_at_its_new_owner_with_all_keys() {
    let cluster = masters().await;
    let slot = cluster.slot_of("{a}").await;
    let from = cluster.node_of(slot).await;
    let to = (from + 1) % 3;
    let keys: Vec<String> = (100..350).map(|number| format!("{{a}}{number}")).collect();
    for key in &keys {
        cluster.node(from).cli(&["SET", key, "1"]).await;
    }
    let start = Instant::now();
    cluster.migrate(slot, to).await;
    took("migration of 250 keys", start);
    assert_eq!(cluster.node(from).keys().await.len(), 0);
    assert_eq!(cluster.node(to).keys().await, keys);
    let moved = cluster.node(from).try_cli::<()>(&["GET", "{a}100"]).await;
    assert_eq!(refusal(moved), ServerErrorKind::Moved);
    assert_eq!(cluster.node_of(slot).await, to);
    for _ in 0..5 {
        cluster.migrate(slot, from).await;
        cluster.migrate(slot, to).await;
    }
    assert_eq!(cluster.node(to).keys().await, keys);
    took("and ten more", start);
    cluster.wait_until_stable().await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn half_migrated_slot_asks_and_says_try_again_until_it_is_finished_or_undone() {
    let cluster = masters().await;
    let slot = cluster.slot_of("{a}").await;
    let from = cluster.node_of(slot).await;
    let to = (from + 1) % 3;
    for key in ["{a}1", "{a}2"] {
        cluster.node(from).cli(&["SET", key, "1"]).await;
    }
    for undo in [true, false] {
        let half = cluster.half_migrate(slot, to).await;
        assert_eq!((half.from(), half.to()), (from, to));
        assert_eq!(keys_in(&cluster, to, slot).await, ["{a}1"]);
        assert_eq!(keys_in(&cluster, from, slot).await, ["{a}2"]);
        let ask = async |words: &[&str]| refusal(cluster.node(from).try_cli::<()>(words).await);
        assert_eq!(ask(&["GET", "{a}1"]).await, ServerErrorKind::Ask);
        assert_eq!(
            ask(&["MGET", "{a}1", "{a}2"]).await,
            ServerErrorKind::TryAgain
        );
        assert_eq!(cluster.node_of(slot).await, from);
        if undo {
            cluster.undo(half).await;
            assert_eq!(keys_in(&cluster, from, slot).await, ["{a}1", "{a}2"]);
            assert_eq!(cluster.node_of(slot).await, from);
        } else {
            cluster.finish(half).await;
            assert_eq!(keys_in(&cluster, to, slot).await, ["{a}1", "{a}2"]);
            assert_eq!(cluster.node_of(slot).await, to);
        }
        cluster.wait_until_stable().await;
    }
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn planned_failover_makes_the_replica_the_master_without_a_loss() {
    let cluster = RedisCluster::builder().start().await;
    let key = cluster.key_at(1, "key").await;
    cluster.node(1).cli(&["SET", &key, "1"]).await;
    let start = Instant::now();
    assert_eq!(cluster.fail_over(1).await, 4);
    took("planned failover", start);
    has_keys(cluster.node(4), &[&key]).await;
    cluster.wait_until_stable().await;
    took("stable again", start);
    assert_eq!(cluster.replicas_of(4).await, [1]);
    assert_eq!(cluster.fail_over(4).await, 1);
    has_keys(cluster.node(1), &[&key]).await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn killed_master_is_replaced_and_comes_back_as_a_replica() {
    let mut cluster = RedisCluster::builder().start().await;
    let key = cluster.key_at(2, "key").await;
    let slot = cluster.slot_of(&key).await;
    cluster.node(2).cli(&["SET", &key, "1"]).await;
    has_keys(cluster.node(5), &[&key]).await;
    let start = Instant::now();
    cluster.node_mut(2).kill();
    assert_eq!(cluster.node_of(slot).await, 2);
    assert_eq!(cluster.node_of_after(slot, 2).await, 5);
    took("owner after a kill", start);
    cluster.wait_until_stable().await;
    took("stable after a kill", start);
    has_keys(cluster.node(5), &[&key]).await;
    let start = Instant::now();
    cluster.node_mut(2).restart().await;
    cluster.wait_until_stable().await;
    took("stable after a restart", start);
    assert_eq!(cluster.replicas_of(5).await, [2]);
    has_keys(cluster.node(2), &[&key]).await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn stopped_master_is_replaced_and_is_a_replica_when_it_goes_on() {
    let mut cluster = RedisCluster::builder().start().await;
    cluster.node_mut(0).stop();
    // Not before the others have seen it.
    cluster.wait_until_stable().await;
    assert_eq!(cluster.node_of(0).await, 3);
    cluster.node_mut(0).cont();
    cluster.wait_until_stable().await;
    assert_eq!(cluster.replicas_of(3).await, [0]);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn without_a_replica_a_killed_master_stops_the_cluster_until_it_is_back() {
    let mut cluster = masters().await;
    let key = cluster.key_at(1, "key").await;
    cluster.node_mut(0).kill();
    let down = async || {
        let answer = cluster
            .node(1)
            .try_cli::<Option<String>>(&["GET", &key])
            .await;
        answer.is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown))
    };
    eventually(SOON * 2, "the cluster to be down", down).await;
    cluster.node_mut(0).restart().await;
    cluster.wait_until_stable().await;
    assert_eq!(cluster.node_of(0).await, 0);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn master_that_was_a_replica_has_no_slots_on_their_way_when_it_restarts_empty() {
    let mut cluster = RedisCluster::builder().start().await;
    let key = cluster.key_at(1, "key").await;
    cluster.node(1).cli(&["SET", &key, "1"]).await;
    // The replica is given a whole copy once more, now with this key.
    cluster.node_mut(4).restart_empty().await;
    cluster.wait_until_stable().await;
    assert_eq!(cluster.fail_over(1).await, 4);
    cluster.migrate(cluster.slot_of(&key).await, 0).await;
    for node in [1, 4] {
        cluster.node_mut(node).kill();
    }
    for node in [4, 1] {
        cluster.node_mut(node).restart_empty().await;
    }
    cluster.wait_until_stable().await;
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn added_node_gets_slots_and_gives_them_back_and_is_forgotten() {
    let mut cluster = masters().await;
    let start = Instant::now();
    let node = cluster.add_node().await;
    took("one more node", start);
    assert_eq!((node, cluster.size()), (3, 4));
    assert!(
        cluster
            .url()
            .ends_with(&format!(":{}", cluster.node(3).port()))
    );
    assert!(cluster.slots_of(node).await.is_empty());
    for slot in [0, 1, 7] {
        cluster.migrate(slot, node).await;
    }
    assert_eq!(cluster.slots_of(node).await, [0, 1, 7]);
    for slot in [0, 1, 7] {
        cluster.migrate(slot, 0).await;
    }
    let start = Instant::now();
    cluster.forget(node).await;
    took("forgotten", start);
    assert!(
        !cluster
            .url()
            .contains(&cluster.node(node).port().to_string())
    );
    let nodes: String = cluster
        .node(0)
        .try_cli(&["CLUSTER", "NODES"])
        .await
        .unwrap();
    assert_eq!(nodes.lines().count(), 3);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn all_clients_are_cut_at_once() {
    let cluster = masters().await;
    let mut clients = Vec::new();
    for node in 0..3 {
        let client = cluster.node(node).client();
        clients.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    let mut pubsub = cluster.node(0).client().get_async_pubsub().await.unwrap();
    pubsub.subscribe("channel").await.unwrap();
    assert!(cluster.kill_clients().await >= 4);
    for client in &mut clients {
        assert!(client.ping().await.is_err());
    }
    assert_eq!(cluster.node(0).pubsub_numsub("channel").await, 0);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn user_and_password_are_asked_for_also_by_migrations_and_replicas() {
    let cluster = RedisCluster::builder()
        .credentials("shop", "p:w@/1")
        .start()
        .await;
    assert!(
        cluster
            .url()
            .starts_with("redis+cluster://shop:p%3Aw%40%2F1@127.0.0.1:")
    );
    let url = format!("redis://{}", cluster.node(0).addr());
    let client = redis::Client::open(url).unwrap();
    let mut stranger = client.get_multiplexed_async_connection().await.unwrap();
    assert_eq!(stranger.ping().await.unwrap_err().code(), Some("NOAUTH"));
    let key = cluster.key_at(0, "key").await;
    cluster.node(0).cli(&["SET", &key, "1"]).await;
    cluster.migrate(cluster.slot_of(&key).await, 1).await;
    has_keys(cluster.node(4), &[&key]).await;
    assert_eq!(cluster.fail_over(1).await, 4);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn nodes_name_the_proxies_and_replicas_come_through_them() {
    let builder = RedisCluster::builder().proxies(true);
    let cluster = builder.arg("--maxclients", "77").start().await;
    assert_eq!(cluster.node(4).info("clients").await["maxclients"], "77");
    let port = |node: usize| cluster.proxy(node).addr().port();
    let ports: Vec<_> = (0..6)
        .map(|node| format!("127.0.0.1:{}", port(node)))
        .collect();
    assert_eq!(
        cluster.url(),
        format!("redis+cluster://{}", ports.join(","))
    );
    let slots = cluster.node(2).cli(&["CLUSTER", "SLOTS"]).await;
    let slots = format!("{slots:?}");
    // A replica appears there only after its first news of the data.
    let masters = ports[..3]
        .iter()
        .map(|addr| addr.rsplit(':').next().unwrap());
    assert!(
        masters.into_iter().all(|port| slots.contains(port)),
        "{slots}"
    );
    let of_role = |node: usize, role| {
        let connections = cluster.proxy(node).connections();
        connections.iter().filter(|open| open.role == role).count()
    };
    assert_eq!(
        (of_role(0, Role::Replica), of_role(3, Role::Replica)),
        (1, 0)
    );
    let key = cluster.key_at(0, "key").await;
    let client = redis::Client::open(cluster.proxy(0).url()).unwrap();
    let mut client = RedisServer::connection_of(&client).await.unwrap();
    client.set(&key, "x".repeat(1_000_000)).await.unwrap();
    has_keys(cluster.node(3), &[&key]).await;
    assert_eq!(cluster.fail_over(0).await, 3);
    let moved = client.get(&key).await.unwrap_err();
    assert_eq!(moved.redirect_node().unwrap().0, ports[3]);
    cluster.wait_until_stable().await;
    assert_eq!(
        (of_role(0, Role::Replica), of_role(3, Role::Replica)),
        (0, 1)
    );
}

#[tokio::test]
async fn dropped_cluster_is_gone() {
    let mut cluster = masters().await;
    cluster.node_mut(1).stop();
    ends::is_gone_when_dropped(cluster, pids);
}

#[tokio::test]
#[ignore = "played by `.ci/run engines`: a cluster takes time"]
async fn cluster_of_a_test_that_panics_is_gone() {
    ends::is_gone_after_a_panic(masters(), pids).await;
}

#[tokio::test]
async fn shared_cluster_dies_with_a_killed_test_process() {
    ends::dies_with_a_killed_test_process("cluster", 3).await;
}

#[test]
fn shared_cluster_outlives_the_runtime_that_started_it() {
    ends::outlives_the_runtime_that_started_it(async || {
        let cluster = RedisCluster::shared().await;
        (pids(cluster), cluster.node_of(0).await)
    });
}

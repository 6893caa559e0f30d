//! The names of a cluster's seeds and of Sentinels, while a client is connected: they are pointed elsewhere, or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use distlock::{Builder, Client, Health};
use distlock_tests::server::loopback;
use distlock_tests::server::sentinel::SERVICE;
use distlock_tests::{
    BY_MESSAGE, ByNames, Names, Proxy, RedisCluster, RedisServer, Select, SentinelSet, eventually,
    eventually_eq, lock_once,
};
use tokio::time::timeout;

use crate::redis::{SOON, ms};

const NAME: &str = "locks.test";
const CLUSTER: &str = "redis+cluster://locks.test";

/// How often the clients of these tests look the names up.
const LOOK: Duration = ms(50);

/// A third of it is far more than [`SOON`], so no renewal finds a loss within a test.
const LEASE: Duration = ms(300_000);

/// Only the client's look for its holds finds that they are lost.
fn builder(names: &Names) -> Builder {
    let builder = Client::builder().watchdog_timeout(LEASE).track_holds(false);
    builder.by_names(names).look_up_interval(LOOK)
}

async fn cluster() -> RedisCluster {
    RedisCluster::builder().replicas(false).start().await
}

/// Completes when the name was looked up so often since it was set.
async fn asked(names: &Names, name: &str, times: u64) {
    let asked = || async {
        let asked = names.asked(name);
        if asked >= times { Ok(()) } else { Err(asked) }
    };
    eventually(SOON, "look-ups", asked).await;
}

/// How many connections of clients of this crate these servers have.
async fn connections(servers: &[&RedisServer]) -> usize {
    let mut count = 0;
    for server in servers {
        let clients = server.client_list().await;
        // The name of a client ends with its id.
        count += clients
            .iter()
            .filter(|line| line.field("name").contains(':'))
            .count();
    }
    count
}

fn nodes(cluster: &RedisCluster) -> Vec<&RedisServer> {
    (0..cluster.size()).map(|node| cluster.node(node)).collect()
}

#[tokio::test]
async fn seed_that_is_pointed_at_another_cluster_takes_clients_there_and_their_holds_are_lost() {
    let (old, new) = (cluster().await, cluster().await);
    let names = Names::new();
    names.lead(NAME, [old.node(0).addr()]);
    let client = builder(&names).connect(CLUSTER).await.unwrap();
    let keys: Vec<String> = [old.key_at(0, "k:").await, old.key_at(1, "k:").await].to_vec();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.lock(key).acquire().wait(SOON).await.unwrap());
    }
    // A waiter goes along.
    let holder = builder(&names).look_up_interval(Duration::ZERO);
    let holder = holder.connect(CLUSTER).await.unwrap();
    let _held = holder.lock("waited").acquire().wait(SOON).await.unwrap();
    let waits = tokio::spawn(client.lock("waited").acquire().wait(2 * SOON).into_future());
    names.lead(NAME, [new.node(1).addr()]);
    let later = builder(&names).connect(CLUSTER).await.unwrap();
    for key in &keys {
        let other = later.lock(key).acquire().wait(SOON).await;
        other.expect("free there").release().await.unwrap();
    }
    // The client looks for its holds at the new nodes: the next renewal comes far later.
    for guard in guards {
        timeout(SOON, guard.lost()).await.expect("told as lost");
        assert!(guard.release().await.is_err());
    }
    waits
        .await
        .unwrap()
        .expect("free there")
        .release()
        .await
        .unwrap();
    let guard = client.lock(&keys[0]).acquire().wait(SOON).await.unwrap();
    assert!(later.lock(&keys[0]).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    drop((holder, _held));
    let left = || async { connections(&nodes(&old)).await };
    eventually_eq(2 * SOON, "connections to the old cluster", 0, left).await;
    assert_eq!(client.health(), Health::Connected);
    assert!(
        client.servers().contains(&new.node(0).addr().to_string()),
        "{}",
        client.servers()
    );
}

/// A cluster that publishes sharded messages, if the server has them, and one that publishes only plain ones, as before an upgrade.
async fn new_and_old_cluster() -> [RedisCluster; 2] {
    let new = cluster().await;
    let mut old = RedisCluster::builder().replicas(false);
    if new.has_sharded_messages().await {
        old = old
            .arg("--rename-command", "SPUBLISH")
            .arg("HIDDEN", "--rename-command")
            .arg("SSUBSCRIBE", "HIDDEN2");
    }
    [new, old.start().await]
}

/// The client has gone to this cluster, and hears there what a client publishes that was started later.
async fn hears_others_at(cluster: &RedisCluster, client: &Client, names: &Names) {
    let node = cluster.node(0);
    let moved = || async { client.servers().contains(&node.addr().to_string()) };
    eventually_eq(2 * SOON, "the client has gone", true, moved).await;
    let key = cluster.key_at(0, "heard:").await;
    let later = builder(names).connect(CLUSTER).await.unwrap();
    let guard = later.lock(&key).acquire().wait(SOON).await.unwrap();
    let waits = tokio::spawn(client.lock(&key).acquire().wait(2 * SOON).into_future());
    cluster.listened(0, &key).await;
    guard.release().await.unwrap();
    let granted = timeout(BY_MESSAGE, waits).await.expect("woken");
    granted.unwrap().unwrap().release().await.unwrap();
}

/// The name of a cluster, and a client that has used it. All nodes are gone after that.
///
/// Nothing looks at the name while the nodes answer: it is the search for the map that does.
async fn behind_a_name_and_gone(cluster: &mut RedisCluster) -> (Names, Client) {
    let names = Names::new();
    names.lead(NAME, [cluster.node(0).addr()]);
    let builder = builder(&names).look_up_interval(Duration::ZERO);
    let client = builder.connect(CLUSTER).await.unwrap();
    lock_once(&client, "k").await;
    for node in 0..cluster.size() {
        cluster.node_mut(node).kill();
    }
    (names, client)
}

#[tokio::test]
async fn cluster_behind_a_name_that_publishes_in_another_way_than_the_last_one_is_heard() {
    let [new, old] = new_and_old_cluster().await;
    let names = Names::new();
    for [from, to] in [[&old, &new], [&new, &old]] {
        names.lead(NAME, [from.node(0).addr()]);
        let client = builder(&names).connect(CLUSTER).await.unwrap();
        lock_once(&client, "k").await;
        names.lead(NAME, [to.node(1).addr()]);
        hears_others_at(to, &client, &names).await;
    }
}

#[tokio::test]
async fn cluster_that_is_found_when_all_nodes_are_gone_and_publishes_in_another_way_is_heard() {
    let [new, mut old] = new_and_old_cluster().await;
    let (names, client) = behind_a_name_and_gone(&mut old).await;
    names.lead(NAME, [new.node(1).addr()]);
    hears_others_at(&new, &client, &names).await;
}

#[tokio::test]
async fn seed_that_leads_to_other_nodes_of_its_cluster_nowhere_or_to_a_server_alone_changes_nothing()
 {
    let (cluster, alone) = (cluster().await, RedisServer::start().await);
    let names = Names::new();
    names.lead(NAME, [cluster.node(0).addr()]);
    let client = builder(&names).connect(CLUSTER).await.unwrap();
    let key = cluster.key_at(2, "k:").await;
    let guard = client.lock(&key).acquire().wait(SOON).await.unwrap();
    let before = client.servers();
    names.lead(NAME, [cluster.node(1).addr()]);
    asked(&names, NAME, 12).await;
    names.lead(NAME, [alone.addr()]);
    asked(&names, NAME, 12).await;
    names.lead(NAME, []);
    asked(&names, NAME, 6).await;
    names.forget(NAME);
    asked(&names, NAME, 6).await;
    assert!(timeout(ms(1), guard.lost()).await.is_err());
    assert_eq!(client.servers(), before);
    lock_once(&client, "other").await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn cluster_whose_nodes_are_all_at_new_addresses_is_found_behind_the_name() {
    let (mut old, new) = (cluster().await, cluster().await);
    let (names, client) = behind_a_name_and_gone(&mut old).await;
    names.lead(NAME, [new.node(2).addr()]);
    let acquired = client.lock("k").acquire().wait(2 * SOON).await;
    acquired.unwrap().release().await.unwrap();
    assert!(
        client.servers().contains(&new.node(0).addr().to_string()),
        "{}",
        client.servers()
    );
}

#[tokio::test]
async fn cluster_behind_a_name_is_found_soon_however_many_other_nodes_do_not_answer() {
    let (mut old, new) = (cluster().await, cluster().await);
    let names = Names::new();
    names.lead(NAME, [old.node(0).addr()]);
    // One after the other, they would be asked for longer than the wait.
    let nowhere: String = (0..150).map(|n| format!(",nowhere{n}.test")).collect();
    let builder = builder(&names).connect_timeout(10 * SOON);
    let builder = builder.look_up_interval(Duration::ZERO);
    let client = builder.connect(&format!("{CLUSTER}{nowhere}")).await;
    let client = client.unwrap();
    for node in 0..old.size() {
        old.node_mut(node).kill();
    }
    names.lead(NAME, [new.node(0).addr()]);
    let acquired = client.lock("k").acquire().wait(SOON).await;
    acquired.unwrap().release().await.unwrap();
}

/// The nodes announce addresses that the client does not reach, as those of containers. It has read their map, and opened nothing.
#[tokio::test]
async fn cluster_that_was_made_anew_before_a_lazy_client_reached_it_is_found_behind_the_name() {
    let old = RedisCluster::builder().replicas(false).proxies(true);
    let (mut old, new) = (old.start().await, cluster().await);
    let faults: Vec<_> = (0..old.size())
        .map(|node| old.proxy(node).refuse())
        .collect();
    let names = Names::new();
    names.lead(NAME, [old.node(0).addr()]);
    // Shorter than what the nodes of the map take together, which are asked one after the other.
    let builder = builder(&names).connect_timeout(ms(1_000));
    let client = builder.connect_lazy(CLUSTER).unwrap();
    let announced = old.proxy(1).addr().to_string();
    let is_known = || async { client.servers().contains(&announced) };
    eventually_eq(SOON, "the map was read", true, is_known).await;
    eventually(SOON, "a node that was tried", || async {
        let tried = faults.iter().any(|fault| fault.hits() > 0);
        if tried { Ok(()) } else { Err("none") }
    })
    .await;
    for node in 0..old.size() {
        old.node_mut(node).kill();
    }
    names.lead(NAME, [new.node(0).addr()]);
    let acquired = client.lock("k").acquire().wait(2 * SOON).await;
    acquired.unwrap().release().await.unwrap();
}

/// As in Kubernetes, where another program gets the address of a pod that is gone.
#[tokio::test]
async fn node_of_another_cluster_at_the_address_of_a_node_that_is_gone_takes_no_client_along() {
    let mut own = RedisCluster::builder().replicas(false).proxies(true);
    own = own.arg("--cluster-require-full-coverage", "no");
    let (mut own, other) = (own.start().await, cluster().await);
    let url = format!("redis+cluster://{}", own.proxy(0).addr());
    let client = Client::connect(&url).await.unwrap();
    let [here, gone] = [own.key_at(0, "k:").await, own.key_at(1, "k:").await];
    for key in [&here, &gone] {
        lock_once(&client, key).await;
    }
    own.node_mut(1).kill();
    // The node does not have the slot of the key, and sends commands to one that no map of the own cluster has named.
    own.proxy(1).set_target(other.node(2).addr());
    assert!(own.proxy(1).cut(Select::ALL) > 0);
    for _ in 0..20 {
        let granted = client.lock(&gone).acquire().wait(ms(300)).await;
        assert!(granted.is_err(), "{granted:?}");
        let servers = client.servers();
        for node in nodes(&other) {
            assert!(!servers.contains(&node.addr().to_string()), "{servers}");
        }
    }
    let guard = client.lock(&here).acquire().wait(SOON).await.unwrap();
    assert!(own.node(0).keys().await.contains(&here));
    guard.release().await.unwrap();
    for node in nodes(&other) {
        assert_eq!(node.keys().await, Vec::<String>::new());
    }
}

/// As behind a balancer with a port for each node. The name gets another address of the same nodes.
#[tokio::test]
async fn name_of_nodes_without_a_host_that_gets_other_addresses_changes_nothing() {
    let cluster = cluster().await;
    if !cluster.has_sharded_messages().await {
        return println!("left out: before version 7.0, all nodes announce a host");
    }
    let unknown = [
        "CONFIG",
        "SET",
        "cluster-preferred-endpoint-type",
        "unknown-endpoint",
    ];
    cluster.each(&unknown).await;
    let seed = cluster.node(0).addr();
    let balancer = Proxy::start(seed).await;
    let (asked, moved) = (Arc::new(AtomicU64::new(0)), balancer.addr());
    let counted = Arc::clone(&asked);
    // The nodes have the host of the URL, each with its own port. The first one gets another address.
    let look_up = move |_: &str, port| {
        let is_moved = counted.load(Relaxed) > 0 && port == seed.port();
        if is_moved {
            counted.fetch_add(1, Relaxed);
        }
        let at = if is_moved { moved } else { loopback(port) };
        async move { Ok(vec![at]) }
    };
    let builder = Client::builder().look_up_by(look_up).look_up_interval(LOOK);
    let url = format!("redis+cluster://{NAME}:{}", seed.port());
    let client = builder.connect(&url).await.unwrap();
    let key = cluster.key_at(1, "k:").await;
    let guard = client.lock(&key).acquire().wait(SOON).await.unwrap();
    let before = client.servers();
    assert!(before.contains(NAME), "{before}");
    asked.store(1, Relaxed);
    let looked = || async { asked.load(Relaxed) > 12 };
    eventually_eq(SOON, "look-ups", true, looked).await;
    assert_eq!(client.servers(), before);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn zero_never_looks_the_names_of_seeds_up_again() {
    let (old, new) = (cluster().await, cluster().await);
    let names = Names::new();
    names.lead(NAME, [old.node(0).addr()]);
    let connect = |look| {
        let builder = builder(&names).look_up_interval(look);
        async move { builder.connect(CLUSTER).await.unwrap() }
    };
    let (stays, goes) = (connect(Duration::ZERO).await, connect(LOOK).await);
    names.lead(NAME, [new.node(0).addr()]);
    let moved = || async { goes.servers().contains(&new.node(0).addr().to_string()) };
    eventually_eq(SOON, "another client has gone", true, moved).await;
    lock_once(&stays, "k").await;
    assert!(stays.servers().contains(&old.node(0).addr().to_string()));
}

#[tokio::test]
async fn sentinel_whose_name_is_pointed_at_another_set_takes_clients_to_its_master() {
    let (old, new) = (
        SentinelSet::builder().patient().start().await,
        SentinelSet::builder().patient().start().await,
    );
    let names = Names::new();
    names.lead(NAME, [old.sentinel(0).addr()]);
    let client = builder(&names).connect("redis+sentinel://locks.test/locks");
    let client = client.await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    names.lead(NAME, [new.sentinel(1).addr()]);
    timeout(2 * SOON, guard.lost()).await.expect("told as lost");
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    let master = new.server(new.master().await);
    assert!(master.keys().await.contains(&"k".to_owned()));
    guard.release().await.unwrap();
    lock_once(&client, "other").await;
}

/// The Sentinels have so many connections of clients.
async fn eventually_listened_to(set: &SentinelSet, connections: [usize; 3]) {
    for (at, connections) in connections.into_iter().enumerate() {
        if connections > 0 {
            let to_it = || async {
                let clients = set.sentinel(at).client_list().await;
                let unnamed = clients.iter().filter(|line| line.field("name").is_empty());
                unnamed.count()
            };
            eventually_eq(SOON, "connections to a Sentinel", connections, to_it).await;
        }
    }
}

/// The Sentinel names an earlier master, which still says that it is one. The others outvote it.
#[tokio::test]
async fn sentinel_whose_name_leads_to_an_outvoted_one_of_its_set_keeps_clients_at_their_master() {
    let mut set = SentinelSet::builder().patient().start().await;
    let earlier = RedisServer::start().await;
    let outvoted = set.sentinel(1);
    outvoted.cli(&["SENTINEL", "REMOVE", SERVICE]).await;
    let port = earlier.port().to_string();
    let monitor = ["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", &port, "1"];
    outvoted.cli(&monitor).await;
    let names = Names::new();
    names.lead(NAME, [set.sentinel(0).addr(), outvoted.addr()]);
    let builder = builder(&names).look_up_interval(Duration::ZERO);
    let client = builder.connect("redis+sentinel://locks.test/locks");
    let client = client.await.unwrap();
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    // By its name, and by the address that the others tell.
    eventually_listened_to(&set, [2, 1, 1]).await;
    set.sentinel_mut(0).kill();
    eventually_listened_to(&set, [0, 2, 1]).await;
    // Otherwise the client would go there within a moment.
    assert!(timeout(ms(2_000), guard.lost()).await.is_err());
    assert_eq!(earlier.keys().await, Vec::<String>::new());
    guard.release().await.unwrap();
    lock_once(&client, "other").await;
    assert_eq!(earlier.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn name_that_hangs_does_not_keep_others_from_being_looked_up() {
    let set = SentinelSet::builder().patient().start().await;
    let names = Names::new();
    for (at, name) in ["a.test", "b.test", "c.test"].iter().enumerate() {
        names.lead(name, [set.sentinel(at).addr()]);
    }
    let client = builder(&names).connect("redis+sentinel://a.test,b.test,c.test/locks");
    let client = client.await.unwrap();
    for name in ["a.test", "b.test", "c.test"] {
        asked(&names, name, 3).await;
    }
    names.hang("a.test");
    names.hang("b.test");
    for name in ["a.test", "b.test"] {
        asked(&names, name, 1).await;
    }
    names.lead("c.test", [set.sentinel(2).addr()]);
    asked(&names, "c.test", 20).await;
    // One look-up of each, which is still under way.
    assert_eq!((names.asked("a.test"), names.asked("b.test")), (1, 1));
    lock_once(&client, "k").await;
}

//! Row 60: subscriptions whose slot moves.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::{Builder, Client, Guard, PubSub};
use distlock_tests::{Flow, RedisCluster, Select, Way, Which, eventually, eventually_eq};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::free;
use crate::row::{Row, rows};
use crate::support::{SOON, ms, waiting};

/// A waiter without messages looks at its key after 4 s at least. A message is faster.
const TOLD: Duration = Duration::from_millis(3_500);

/// Waiters of several keys in the slot of `{hot}`, which begins to move while they wait.
struct Waiters {
    cluster: RedisCluster,
    slot: usize,
    from: usize,
    to: usize,
    clients: [Client; 2],
    /// The holds that they wait for.
    held: Vec<Guard>,
    /// The number of the key, and when it was granted.
    waiters: JoinSet<(usize, Guard, Instant)>,
}

impl Waiters {
    async fn of(keys: usize, sharded: bool, set: impl Fn(Builder) -> Builder) -> Self {
        let cluster = RedisCluster::builder().replicas(false).start().await;
        let url = cluster.url();
        let holder = set(Client::builder()).connect(&url).await.unwrap();
        let waiter = set(Client::builder()).connect(&url).await.unwrap();
        let slot = cluster.slot_of("{hot}").await;
        let from = cluster.node_of(slot).await;
        let to = (from + 1) % 3;
        let mut held = Vec::new();
        for n in 0..keys {
            held.push(holder.lock(format!("{{hot}}:{n}")).acquire().await.unwrap());
        }
        let mut waiters = JoinSet::new();
        for n in 0..keys {
            let lock = waiter.lock(format!("{{hot}}:{n}"));
            waiters.spawn(async move {
                let guard = lock.acquire().wait(SOON * 2).await.unwrap();
                (n, guard, Instant::now())
            });
        }
        waiting(&waiter, keys).await;
        listened(&cluster, from, keys, sharded).await;
        Self {
            cluster,
            slot,
            from,
            to,
            clients: [holder, waiter],
            held,
            waiters,
        }
    }

    /// The holds are released, and each waiter is woken by a message.
    async fn hear(&mut self, row: &Row) {
        let keys = self.held.len();
        let mut freed = Vec::new();
        for guard in self.held.drain(..) {
            freed.push(Instant::now());
            guard.release().await.unwrap();
        }
        let mut longest = Duration::ZERO;
        while let Some(joined) = self.waiters.join_next().await {
            let (n, guard, at) = joined.unwrap();
            longest = longest.max(at.duration_since(freed[n]));
            guard.release().await.unwrap();
        }
        println!("the last of {keys} waiters was woken after {longest:?}");
        assert!(longest < row.stretch(TOLD), "{longest:?}");
    }
}

async fn waiters_hear_after_a_move(row: &Row, set: impl Fn(Builder) -> Builder, sharded: bool) {
    let keys = 100;
    let mut waiters = Waiters::of(keys, sharded, set).await;
    let Waiters {
        cluster, from, to, ..
    } = &waiters;
    cluster.migrate(waiters.slot, *to).await;
    row.injected("slot moved", 1);
    let moved = Instant::now();
    // The publisher counts only those that listen at its own node.
    listened(cluster, *to, keys, sharded).await;
    if sharded {
        // The old node has ended the subscriptions unasked. That, and no look at the keys, makes the client subscribe anew.
        assert!(moved.elapsed() < row.stretch(TOLD), "{:?}", moved.elapsed());
    }
    listened(cluster, *from, 0, sharded).await;
    waiters.hear(row).await;
    free(&waiters.cluster, &waiters.clients).await;
}

async fn listened(cluster: &RedisCluster, node: usize, many: usize, sharded: bool) {
    let words: &[&str] = if sharded {
        &["PUBSUB", "SHARDCHANNELS", "*{hot}*"]
    } else {
        &["PUBSUB", "CHANNELS", "*{hot}*"]
    };
    eventually_eq(SOON, "channels", many, || async {
        let channels: Vec<String> = cluster.node(node).try_cli(words).await.unwrap();
        channels.len()
    })
    .await;
}

async fn f60_waiters_hear_of_releases_after_their_slot_has_moved(row: &Row) {
    waiters_hear_after_a_move(row, |builder| builder, true).await;
}

async fn f60_waiters_that_listen_both_ways_hear_after_a_move(row: &Row) {
    waiters_hear_after_a_move(row, |builder| builder.pub_sub(PubSub::Both), true).await;
}

async fn f60_waiters_with_plain_messages_hear_after_a_move(row: &Row) {
    waiters_hear_after_a_move(row, |builder| builder.pub_sub(PubSub::Plain), false).await;
}

async fn f60_waiters_hear_of_releases_while_their_slot_is_between_two_nodes(row: &Row) {
    let mut waiters = Waiters::of(20, true, |builder| builder).await;
    let half = waiters.cluster.half_migrate(waiters.slot, waiters.to).await;
    row.injected("slot left between nodes", 1);
    waiters.hear(row).await;
    waiters.cluster.finish(half).await;
    free(&waiters.cluster, &waiters.clients).await;
}

/// Keys in different slots of a node.
async fn keys_at(cluster: &RedisCluster, node: usize, many: usize) -> Vec<(String, usize)> {
    let slots = cluster.slots_of(node).await;
    let (mut keys, mut used) = (Vec::new(), BTreeSet::new());
    for n in 0.. {
        let key = format!("f60:{n}");
        let slot = cluster.slot_of(&key).await;
        if slots.contains(&slot) && used.insert(slot) {
            keys.push((key, slot));
        }
        if keys.len() == many {
            break;
        }
    }
    keys
}

/// How often the nodes were asked for the map.
async fn looks(cluster: &RedisCluster) -> u64 {
    let mut looks = 0;
    for node in 0..cluster.size() {
        looks += cluster.node(node).command_calls("cluster|slots").await;
    }
    looks
}

/// Completes when a client listens at the node. Returns its connections.
async fn listeners(cluster: &RedisCluster, node: usize) -> Vec<String> {
    eventually(SOON, "a connection that listens", || async {
        let clients = cluster.node(node).client_list().await;
        let listening = clients.iter().filter(|line| line.field("sub") != "0");
        let ids: Vec<String> = listening.map(|line| line.field("id").to_owned()).collect();
        if ids.is_empty() { Err("none") } else { Ok(ids) }
    })
    .await
}

async fn f60_slots_that_move_one_by_one_cost_plain_messages_no_connection_each(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let plain = || Client::builder().pub_sub(PubSub::Plain);
    let holder = plain().connect(&cluster.url()).await.unwrap();
    let waiter = plain().connect(&cluster.url()).await.unwrap();
    // The first one stays.
    let keys = keys_at(&cluster, 0, 26).await;
    let (mut held, mut waiters) = (Vec::new(), JoinSet::new());
    for (key, _) in &keys {
        held.push(holder.lock(key).acquire().await.unwrap());
        waiters.spawn(waiter.lock(key).acquire().wait(SOON * 3).into_future());
    }
    waiting(&waiter, keys.len()).await;
    let mut connections: BTreeSet<String> = listeners(&cluster, 0).await.into_iter().collect();
    let before = looks(&cluster).await;
    for (key, slot) in &keys[1..] {
        cluster.migrate(*slot, 1).await;
        row.injected("slot moved", 1);
        // Teaches the client the new owner.
        assert!(waiter.lock(key).try_acquire().await.unwrap().is_none());
        connections.extend(listeners(&cluster, 0).await);
    }
    let (replaced, looks) = (connections.len() as u64 - 1, looks(&cluster).await - before);
    println!("{replaced} connections were replaced, and the map was read {looks} times");
    assert!(replaced <= looks, "{replaced} for {looks} looks");
    for guard in held {
        guard.release().await.unwrap();
    }
    while let Some(joined) = waiters.join_next().await {
        joined.unwrap().unwrap().release().await.unwrap();
    }
    free(&cluster, &[holder, waiter]).await;
}

async fn f60_release_of_many_keys_between_two_nodes_waits_once_for_their_owner(row: &Row) {
    const KEYS: usize = 20;
    let cluster = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = cluster.start().await;
    let builder = Client::builder().response_timeout(ms(1_000));
    let client = builder.connect(&cluster.url()).await.unwrap();
    let slot = cluster.slot_of("{hot}").await;
    let from = cluster.node_of(slot).await;
    let names: Vec<String> = (0..KEYS).map(|n| format!("{{hot}}:{n:02}:a")).collect();
    let guard = client.multi_lock(names).acquire().await.unwrap();
    // Every second key moves.
    for n in 0..KEYS {
        let other = format!("{{hot}}:{n:02}:b");
        cluster.node(from).cli(&["SET", &other, "1"]).await;
    }
    let half = cluster.half_migrate(slot, (from + 1) % 3).await;
    row.injected("slot left between nodes", 1);
    let owner = cluster.proxy(from);
    let published = owner.hold(Select::COMMANDS, Which::NEXT.containing("SPUBLISH"));
    let release = tokio::spawn(guard.release());
    let caught = published.caught(SOON).await;
    let silent = owner.flow(Select::ALL, Way::Both, Flow::Stall);
    // As many response timeouts as there are keys would be twice as long.
    let released = timeout(row.stretch(SOON), release).await;
    released.expect("released").unwrap().unwrap();
    row.injected("owner silent", 1);
    drop((silent, caught));
    owner.heal();
    cluster.finish(half).await;
}

rows! {
    Real: f60_waiters_hear_of_releases_after_their_slot_has_moved,
        f60_waiters_hear_of_releases_while_their_slot_is_between_two_nodes,
        f60_slots_that_move_one_by_one_cost_plain_messages_no_connection_each,
        f60_release_of_many_keys_between_two_nodes_waits_once_for_their_owner;
    Real, left to "engines":
        f60_waiters_that_listen_both_ways_hear_after_a_move,
        f60_waiters_with_plain_messages_hear_after_a_move;
}

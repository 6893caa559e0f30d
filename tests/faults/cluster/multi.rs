//! Row 84 on a cluster: multi-locks whose keys live on several nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, test_util};
use distlock_tests::{RedisCluster, eventually_eq, lock_once, size};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{clients, free, patient_clients};
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

async fn f84_multi_locks_over_slots_in_opposite_orders_go_on(row: &Row) {
    const KEYS: usize = 10;
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 4).await;
    let inside: Arc<[AtomicBool; KEYS]> = Arc::default();
    let (grants, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut tasks = JoinSet::new();
    for task in 0..100 {
        let client = clients[task % clients.len()].clone();
        let (inside, grants, stop) = (Arc::clone(&inside), Arc::clone(&grants), Arc::clone(&stop));
        tasks.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let (many, first) = (rand::random_range(2..=4), rand::random_range(0..KEYS));
                let mut keys: Vec<usize> = (0..many).map(|n| (first + n * 3) % KEYS).collect();
                if task % 2 == 0 {
                    keys.reverse();
                }
                let names = keys.iter().map(|at| format!("f84:{at}"));
                let guard = client
                    .multi_lock(names)
                    .acquire()
                    .wait(SOON * 6)
                    .await
                    .unwrap();
                for at in &keys {
                    assert!(!inside[*at].swap(true, Ordering::SeqCst), "two inside");
                }
                sleep(ms(1)).await;
                for at in &keys {
                    inside[*at].store(false, Ordering::SeqCst);
                }
                grants.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    let (mut before, mut longest) = (0, Duration::ZERO);
    let (begun, mut moved) = (Instant::now(), Instant::now());
    while begun.elapsed() < size(Duration::from_secs(10), Duration::from_secs(60)) {
        sleep(ms(20)).await;
        let now = grants.load(Ordering::SeqCst);
        longest = longest.max(moved.elapsed());
        if now != before {
            (before, moved) = (now, Instant::now());
        }
    }
    row.injected("multi-lock taken", before);
    println!("{before} grants, {longest:?} without any");
    assert!(
        longest < row.stretch(Duration::from_secs(1)),
        "{longest:?} without any grant"
    );
    stop.store(true, Ordering::SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    free(&cluster, &clients).await;
}

async fn f84_parts_of_a_multi_lock_go_back_when_a_node_is_down(row: &Row) {
    let builder = RedisCluster::builder().replicas(false);
    // The others must not count it as failed, which would stop the whole cluster.
    let mut cluster = builder.arg("--cluster-node-timeout", "60000").start().await;
    let clients = clients(&cluster, 2).await;
    let (client, other) = (&clients[0], &clients[1]);
    let mut keys = Vec::new();
    for node in 0..3 {
        let key = cluster.key_at(node, "f84:part:").await;
        lock_once(client, &key).await;
        keys.push(key);
    }
    cluster.node_mut(1).stop();
    row.injected("node stopped", 1);
    let failed = client
        .multi_lock(keys.clone())
        .acquire()
        .wait(ms(1_500))
        .await;
    assert!(failed.is_err(), "a node that stands still granted a lock");
    for key in [&keys[0], &keys[2]] {
        // The lease is 30 s: only a release frees it in time.
        let guard = other.lock(key).acquire().wait(SOON).await.unwrap();
        guard.release().await.unwrap();
    }
    cluster.node_mut(1).cont();
    let guard = other.lock(&keys[1]).acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
    free(&cluster, &clients).await;
}

async fn f84_node_that_is_killed_while_a_multi_lock_collects_costs_the_other_keys_nothing(
    row: &Row,
) {
    let builder = RedisCluster::builder().replicas(false);
    // The others must not count it as failed, which would stop the whole cluster.
    let mut cluster = builder.arg("--cluster-node-timeout", "60000").start().await;
    let clients = clients(&cluster, 2).await;
    let (client, other) = (&clients[0], &clients[1]);
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.push(cluster.key_at(node, "f84:kill:").await);
    }
    // One key is busy all the time, and another client holds the next, so it has places and asks while the node goes away.
    let stop = Arc::new(AtomicBool::new(false));
    let mut busy = JoinSet::new();
    for _ in 0..4 {
        let (lock, stop) = (client.lock(&keys[0]), Arc::clone(&stop));
        busy.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                lock.acquire().wait(SOON).run(sleep(ms(1))).await.unwrap();
            }
        });
    }
    let foreign = other.lock(&keys[2]).acquire().await.unwrap();
    let waiting = tokio::spawn(client.multi_lock(keys.clone()).acquire().into_future());
    // All but the one of the busy tasks that is inside.
    eventually_eq(SOON, "it waits", true, || async {
        test_util::sizes(client).waiters >= 4
    })
    .await;
    cluster.node_mut(1).kill();
    row.injected("node killed", 1);
    // Takes longer than what was under way at the kill, and may have had the node's grant already.
    let gone = client.lock(&keys[1]).try_acquire().await;
    gone.expect_err("a node that was killed granted a lock");
    foreign.release().await.unwrap();
    // It waits without a limit, so it ends because the server does not answer.
    let failed = timeout(row.stretch(SOON * 2), waiting).await;
    let failed = failed.expect("it waits for a server that is gone").unwrap();
    let error = failed.expect_err("a node that was killed granted a lock");
    assert!(error.is_unavailable(), "{error}");
    stop.store(true, Ordering::SeqCst);
    while let Some(task) = busy.join_next().await {
        task.unwrap();
    }
    for key in [&keys[0], &keys[2]] {
        for client in &clients {
            // The lease is 30 s: only a release frees it in time.
            let guard = client.lock(key).acquire().wait(SOON).await.unwrap();
            guard.release().await.unwrap();
        }
    }
}

async fn f84_keys_on_other_nodes_stay_in_use_while_a_multi_lock_waits_for_a_node_that_stands_still(
    row: &Row,
) {
    // As long as the client waits for an answer of the node.
    const RESPONSE: Duration = Duration::from_secs(2);
    let builder = RedisCluster::builder().replicas(false);
    // The others must not count it as failed, which would stop the whole cluster.
    let mut cluster = builder.arg("--cluster-node-timeout", "60000").start().await;
    let builder = Client::builder().response_timeout(RESPONSE);
    let client = builder.unavailable_after(SOON * 3);
    let client = client.connect(&cluster.url()).await.unwrap();
    let (here, there) = (
        cluster.key_at(0, "f84:used:").await,
        cluster.key_at(1, "f84:still:").await,
    );
    let both = client.multi_lock([&here, &there]);
    both.acquire().await.unwrap().release().await.unwrap();
    cluster.node_mut(1).stop();
    row.injected("node stopped", 1);
    let waiting = tokio::spawn(both.acquire().wait(SOON * 6).into_future());
    // An acquisition that waits for the node learns now that it does not answer.
    sleep(RESPONSE * 2).await;
    let (begun, mut longest, mut grants) = (Instant::now(), Duration::ZERO, 0);
    while begun.elapsed() < RESPONSE * 3 {
        let asked = Instant::now();
        let guard = client.lock(&here).acquire().wait(SOON).await.unwrap();
        longest = longest.max(asked.elapsed());
        grants += 1;
        guard.release().await.unwrap();
    }
    println!("{grants} grants, one after {longest:?}");
    assert!(longest < row.stretch(RESPONSE / 2), "{longest:?}");
    cluster.node_mut(1).cont();
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
    free(&cluster, &[client]).await;
}

async fn f84_multi_locks_survive_moves_of_their_slots(row: &Row) {
    use super::load::{Load, What};
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 3).await;
    let load = Load::start(&clients, "f84:", What::MultiLocks);
    for n in 0..4 {
        load.goes_on(20).await;
        let slot = cluster.slot_of(&format!("f84:{n}")).await;
        let to = (cluster.node_of(slot).await + 1) % 3;
        cluster.migrate(slot, to).await;
        row.injected("slot moved", 1);
    }
    load.end().await;
    free(&cluster, &clients).await;
}

rows! {
    Real: f84_parts_of_a_multi_lock_go_back_when_a_node_is_down;
    Threads, left to "engines":
        f84_multi_locks_over_slots_in_opposite_orders_go_on,
        f84_multi_locks_survive_moves_of_their_slots;
    Real, left to "engines":
        f84_keys_on_other_nodes_stay_in_use_while_a_multi_lock_waits_for_a_node_that_stands_still,
        f84_node_that_is_killed_while_a_multi_lock_collects_costs_the_other_keys_nothing;
}

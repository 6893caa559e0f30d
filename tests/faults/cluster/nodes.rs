//! Rows 7, 23, 24 and 62: nodes and connections that fail.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::Client;
use distlock_tests::{RedisCluster, Select, Which, eventually_eq, long_size, size};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{Instant, sleep};

use super::load::{Load, What};
use super::{free, patient_clients};
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

async fn f07_command_whose_reply_is_lost_takes_effect_once_on_a_cluster(row: &Row) {
    let cluster = RedisCluster::builder()
        .replicas(false)
        .proxies(true)
        .start()
        .await;
    let builder = Client::builder().response_timeout(ms(300));
    let client = builder.connect(&cluster.url()).await.unwrap();
    for n in 0..6 {
        let key = format!("pool:{n}");
        let node = cluster.node_of(cluster.slot_of(&key).await).await;
        let pool = client.semaphore(&key);
        assert!(pool.try_set_permits(1).await.unwrap());
        let eaten = cluster
            .proxy(node)
            .eat_reply(Select::COMMANDS, Which::NEXT.containing(&key));
        pool.add_permits(5).await.unwrap();
        row.injected("reply eaten", eaten.hits());
        assert_eq!(pool.available_permits().await.unwrap(), 6);
        let eaten = cluster
            .proxy(node)
            .eat_reply(Select::COMMANDS, Which::NEXT.containing(&key));
        let permit = pool.acquire().wait(SOON).await.unwrap();
        row.injected("reply eaten", eaten.hits());
        assert_eq!(pool.available_permits().await.unwrap(), 5);
        permit.release().await.unwrap();
        pool.delete().await.unwrap();
    }
}

async fn f23_node_that_stands_still_delays_no_renewal_on_other_nodes(row: &Row) {
    const LEASE: Duration = Duration::from_secs(3);
    let builder = RedisCluster::builder().replicas(false);
    // The others must not count it as failed, which would stop the whole cluster.
    let mut cluster = builder.arg("--cluster-node-timeout", "60000").start().await;
    let builder = Client::builder().watchdog_timeout(LEASE);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let (mut there, mut elsewhere) = (Vec::new(), Vec::new());
    for n in 0..600 {
        let key = format!("f23:{n}");
        let node = cluster.node_of(cluster.slot_of(&key).await).await;
        let guard = client.lock(&key).acquire().await.unwrap();
        match node {
            0 => there.push(guard),
            _ => elsewhere.push((node, key, guard)),
        }
        if n == 200 && !there.is_empty() && elsewhere.len() > 100 {
            break;
        }
    }
    cluster.node_mut(0).stop();
    row.injected("node stopped", 1);
    // Two leases: the holds on the stopped node are lost, and nothing else is.
    let (begun, mut least) = (Instant::now(), LEASE);
    while begun.elapsed() < LEASE * 2 {
        for (node, key, _) in &elsewhere {
            let left = cluster.node(*node).pttl(key).await;
            let left = Duration::from_millis(u64::try_from(left).expect("the key is there"));
            least = least.min(left);
        }
    }
    // A stalled machine delays the watchdog as well.
    let late = row.stretch(Duration::ZERO);
    assert!(
        least + late >= LEASE / 2,
        "{least:?} were left, late by {late:?}"
    );
    assert!(elsewhere.iter().all(|(_, _, guard)| guard.is_held()));
    assert!(
        there.iter().all(|guard| !guard.is_held()),
        "nobody renewed them"
    );
    println!(
        "least left {least:?} of {LEASE:?}, {} + {} holds",
        there.len(),
        elsewhere.len()
    );
    cluster.node_mut(0).cont();
    for (_, _, guard) in elsewhere {
        guard.release().await.unwrap();
    }
    drop(there);
    free(&cluster, &[client]).await;
}

/// A hold in each of many slots, which are renewed by a command each.
async fn f24_holds_in_thousands_of_slots_are_renewed_without_a_loss(row: &Row) {
    const LEASE: Duration = Duration::from_secs(3);
    // 10,000 holds keep a core busy, which the tests beside this one need.
    let (holds, time) = (
        long_size(1_000, 10_000),
        long_size(size(LEASE * 2, LEASE * 5), LEASE * 10),
    );
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = Client::builder().watchdog_timeout(LEASE);
    let client = builder.connect(&cluster.url()).await.unwrap();
    let (mut slots, mut keys) = (BTreeSet::new(), Vec::new());
    for n in 0.. {
        let key = format!("f24:{n}");
        if slots.insert(slot_of(&key)) {
            keys.push(key);
        }
        if keys.len() == holds {
            break;
        }
    }
    let guards = stream::iter(&keys).map(|key| client.lock(key).acquire().into_future());
    let guards: Vec<_> = guards.buffer_unordered(100).try_collect().await.unwrap();
    let (begun, mut least, mut looks) = (Instant::now(), LEASE, 0);
    while begun.elapsed() < time {
        let key = &keys[rand::random_range(0..holds)];
        let node = cluster.node_of(slot_of(key).into()).await;
        let left = cluster.node(node).pttl(key).await;
        least = least.min(Duration::from_millis(left.try_into().unwrap_or(0)));
        looks += 1;
    }
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} of {holds} held after {time:?}, least left {least:?} in {looks} looks");
    row.injected("slot with a hold", holds as u64);
    // A stalled machine delays the watchdog as well.
    let late = row.stretch(Duration::ZERO);
    assert!(least + late >= LEASE / 3, "{least:?}, late by {late:?}");
    assert!(held == holds || late >= LEASE / 3, "{held} held");
    drop(guards);
    free(&cluster, &[client]).await;
}

/// The slot of a name without braces.
fn slot_of(name: &str) -> u16 {
    let crc = name.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % 16_384
}

async fn f62_connections_that_are_all_killed_cost_no_error(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 3).await;
    let load = Load::start(&clients, "f62:", What::Locks);
    for _ in 0..4 {
        load.goes_on(50).await;
        row.injected("connection killed", cluster.kill_clients().await);
    }
    load.goes_on(50).await;
    load.end().await;
    free(&cluster, &clients).await;
}

async fn f62_master_that_is_killed_under_load_is_replaced_without_an_error(row: &Row) {
    let mut cluster = RedisCluster::start().await;
    let clients = patient_clients(&cluster, 3).await;
    let slot = cluster.slot_of("{hot}").await;
    let master = cluster.node_of(slot).await;
    let load = Load::start(&clients, "{hot}:", What::Locks);
    load.goes_on(100).await;
    cluster.node_mut(master).kill();
    row.injected("master killed", 1);
    cluster.node_of_after(slot, master).await;
    let promoted = Instant::now();
    load.goes_on(1).await;
    println!(
        "the first grant came {:?} after all nodes agreed on the new owner",
        promoted.elapsed()
    );
    load.goes_on(100).await;
    load.end_after_a_loss().await;
}

async fn f62_planned_failovers_under_load_cost_no_error(row: &Row) {
    let cluster = RedisCluster::start().await;
    // The others do not vote for two failovers of a shard in a short time. Then the master has stopped for 5 s in vain.
    let clients = patient_clients(&cluster, 3).await;
    let slot = cluster.slot_of("{hot}").await;
    let load = Load::start(&clients, "{hot}:", What::Locks);
    for _ in 0..size(2, 10) {
        load.goes_on(50).await;
        let master = cluster.node_of(slot).await;
        cluster.fail_over(master).await;
        row.injected("planned failover", 1);
    }
    load.goes_on(50).await;
    load.end().await;
}

async fn f62_waiters_of_a_node_that_fails_read_the_map_a_few_times(row: &Row) {
    let mut cluster = RedisCluster::start().await;
    let client = &patient_clients(&cluster, 1).await[0];
    let slot = cluster.slot_of("{hot}").await;
    let master = cluster.node_of(slot).await;
    let guard = client.lock("{hot}:k").acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for n in 0..long_size(200, 1_000) {
        // Every second one waits for another lock in the same slot.
        let key = if n % 2 == 0 {
            "{hot}:k".to_owned()
        } else {
            format!("{{hot}}:{n}")
        };
        let lock = client.lock(key);
        waiters.spawn(async move {
            let guard = lock.acquire().wait(SOON * 6).await?;
            sleep(ms(1)).await;
            guard.release().await
        });
    }
    while let Some(joined) = waiters.try_join_next() {
        joined.unwrap().unwrap();
    }
    let reads = async |cluster: &RedisCluster| {
        let mut reads = 0;
        for at in (0..cluster.size()).filter(|at| cluster.node(*at).runs()) {
            reads += cluster.node(at).command_calls("cluster|slots").await;
        }
        reads
    };
    cluster.node_mut(master).kill();
    let (before, begun) = (reads(&cluster).await, Instant::now());
    row.injected("master killed", 1);
    let next = cluster.node_of_after(slot, master).await;
    drop(guard);
    while let Some(joined) = waiters.join_next().await {
        joined.unwrap().unwrap();
    }
    let reads = reads(&cluster).await - before;
    let took = begun.elapsed();
    println!("{reads} reads of the map in {took:?}");
    // They become less frequent, however many there are who wait.
    let most = 10 + 2 * took.as_secs();
    assert!(reads <= most, "{reads} reads of the map in {took:?}");
    eventually_eq(SOON, "at most two connections", true, || async {
        let connections = cluster.node(next).client_list().await;
        let ours = connections
            .iter()
            .filter(|one| !one.is_harness() && one.field("flags") != "M");
        ours.count() <= 2
    })
    .await;
}

rows! {
    Threads:
        f62_connections_that_are_all_killed_cost_no_error,
        f62_master_that_is_killed_under_load_is_replaced_without_an_error;
    Threads, left to "engines":
        f62_planned_failovers_under_load_cost_no_error,
        f62_waiters_of_a_node_that_fails_read_the_map_a_few_times;
    Real:
        f07_command_whose_reply_is_lost_takes_effect_once_on_a_cluster;
    Real, left to "engines":
        f24_holds_in_thousands_of_slots_are_renewed_without_a_loss,
        f23_node_that_stands_still_delays_no_renewal_on_other_nodes;
}

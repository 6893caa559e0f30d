//! Rows 59 and 61: slots that move, and names that lie in several slots.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::{RedisCluster, eventually_eq, long_size};
use tokio::time::timeout;

use super::load::{Load, What};
use super::{free, patient_clients, redirects};
use crate::row::{Row, rows};
use crate::support::{SOON, ms};

/// Moves the slot of `{hot}` to and fro while tasks use its keys.
async fn migrate_under_load(row: &Row, what: What, times: usize) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 3).await;
    let slot = cluster.slot_of("{hot}").await;
    let home = cluster.node_of(slot).await;
    let other = (home + 1) % 3;
    let before = redirects(&cluster).await;
    let load = Load::start(&clients, "{hot}:", what);
    for n in 0..times {
        load.goes_on(20).await;
        cluster
            .migrate(slot, if n % 2 == 0 { other } else { home })
            .await;
    }
    load.goes_on(20).await;
    let grants = load.end().await;
    row.injected("slot moved", times as u64);
    let redirected = redirects(&cluster).await - before;
    assert!(redirected > 0, "nobody was sent elsewhere");
    println!("{what:?}: {grants} grants, {times} moves, {redirected} redirects");
    free(&cluster, &clients).await;
}

async fn f59_hot_slot_that_moves_to_and_fro_costs_no_error(row: &Row) {
    migrate_under_load(row, What::Locks, long_size(6, 50)).await;
}

async fn f59_scripts_with_several_keys_survive_moves_of_their_slot(row: &Row) {
    migrate_under_load(row, What::SeveralKeys, long_size(6, 50)).await;
}

async fn f59_slot_between_two_nodes_for_seconds_costs_no_error(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 3).await;
    let slot = cluster.slot_of("{hot}").await;
    let to = (cluster.node_of(slot).await + 1) % 3;
    let load = Load::start(&clients, "{hot}:", What::SeveralKeys);
    load.goes_on(100).await;
    let before = redirects(&cluster).await;
    let half = cluster.half_migrate(slot, to).await;
    // The time is the fault.
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.finish(half).await;
    row.injected("slot left between nodes", 1);
    assert!(
        redirects(&cluster).await > before,
        "nobody was sent elsewhere"
    );
    load.goes_on(20).await;
    load.end().await;
    free(&cluster, &clients).await;
}

async fn f59_hold_whose_slot_moves_is_renewed_at_its_new_node(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let builder = Client::builder().watchdog_timeout(ms(1_500));
    let client = builder.connect(&cluster.url()).await.unwrap();
    let slot = cluster.slot_of("{hot}").await;
    let from = cluster.node_of(slot).await;
    let to = (from + 1) % 3;
    let guard = client.lock("{hot}:k").acquire().await.unwrap();
    cluster.migrate(slot, to).await;
    row.injected("slot moved", 1);
    let held = timeout(row.stretch(ms(4_500)), guard.lost()).await;
    assert!(held.is_err(), "it was lost");
    assert!(guard.is_held() && cluster.node(to).pttl("{hot}:k").await > 0);
    guard.release().await.unwrap();
    free(&cluster, &[client]).await;
}

/// The timeout of a reader is a key of its own, which only the lock tells of.
async fn f59_readers_whose_timeouts_are_at_the_other_node_keep_their_locks(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let mut clients = patient_clients(&cluster, 2).await;
    let renews_often = Client::builder().watchdog_timeout(ms(6_000));
    clients.push(renews_often.connect(&cluster.url()).await.unwrap());
    let locks = |client: &Client| {
        let lock = |n| client.rw_lock(format!("{{hot}}:{n}"));
        (0..12).map(lock).collect::<Vec<_>>()
    };
    let (mut stay, mut leave) = (Vec::new(), Vec::new());
    for (client, guards) in [(&clients[2], &mut stay), (&clients[1], &mut leave)] {
        for lock in locks(client) {
            guards.push(lock.read().acquire().await.unwrap());
        }
    }
    let slot = cluster.slot_of("{hot}").await;
    let to = (cluster.node_of(slot).await + 1) % 3;
    let half = cluster.half_migrate(slot, to).await;
    row.injected("slot left between nodes", 1);
    let leaving = leave.into_iter().map(|guard| tokio::spawn(guard.release()));
    let leaving: Vec<_> = leaving.collect();
    // The time is the fault: the others are renewed after two seconds.
    tokio::time::sleep(ms(2_500)).await;
    cluster.finish(half).await;
    for release in leaving {
        release.await.unwrap().unwrap();
    }
    for (lock, guard) in locks(&clients[0]).iter().zip(stay) {
        assert!(guard.is_held(), "{}", guard.key());
        assert!(lock.write().try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    free(&cluster, &clients).await;
}

async fn f59_node_that_joins_gets_slots_and_leaves_is_followed_and_forgotten(row: &Row) {
    let mut cluster = RedisCluster::builder().replicas(false).start().await;
    let clients = patient_clients(&cluster, 2).await;
    let slot = cluster.slot_of("{hot}").await;
    let home = cluster.node_of(slot).await;
    let load = Load::start(&clients, "{hot}:", What::Locks);
    load.goes_on(20).await;
    let new = cluster.add_node().await;
    cluster.migrate(slot, new).await;
    load.goes_on(50).await;
    let connected = || async { harness_apart(&cluster, new).await };
    eventually_eq(SOON, "the new node has connections", true, || async {
        connected().await > 0
    })
    .await;
    cluster.migrate(slot, home).await;
    load.goes_on(50).await;
    row.injected("slot moved", 2);
    load.end().await;
    cluster.forget(new).await;
    row.injected("node forgotten", 1);
    // It is remembered for 10 s, because it might get slots again.
    eventually_eq(SOON * 3, "connections to the node", 0, || async {
        harness_apart(&cluster, new).await
    })
    .await;
    free(&cluster, &clients).await;
}

/// How many connections a node has that are not the harness's.
async fn harness_apart(cluster: &RedisCluster, node: usize) -> usize {
    let connections = cluster.node(node).client_list().await;
    let ours = connections.iter().filter(|one| !one.is_harness());
    // Other nodes do not count: they use the bus.
    ours.count()
}

fn is_refused<T>(row: &Row, refused: Result<T, Error>, name: &str) {
    let error = refused
        .err()
        .unwrap_or_else(|| panic!("{name:?} was not refused"));
    assert!(matches!(error, Error::InvalidKey { .. }), "{name}: {error}");
    assert!(error.to_string().contains("slot"), "{name}: {error}");
    row.injected("name refused", 1);
}

async fn f61_names_of_several_slots_are_refused_and_nothing_is_sent(row: &Row) {
    let cluster = RedisCluster::shared().await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    for name in ["a{b", "a}b", "{}x", "{", "}", "}{"] {
        is_refused(row, client.lock(name).acquire().await, name);
        is_refused(row, client.lock(name).try_acquire().await, name);
        is_refused(row, client.lock(name).is_locked().await, name);
        is_refused(row, client.lock(name).force_release().await, name);
        is_refused(row, client.non_reentrant_lock(name).acquire().await, name);
        is_refused(row, client.spin_lock(name).acquire().await, name);
        is_refused(row, client.fair_lock(name).acquire().await, name);
        is_refused(row, client.fenced_lock(name).acquire().await, name);
        is_refused(row, client.rw_lock(name).read().acquire().await, name);
        is_refused(row, client.rw_lock(name).write().acquire().await, name);
        is_refused(row, client.multi_lock(["k", name]).acquire().await, name);
        is_refused(row, client.semaphore(name).try_set_permits(1).await, name);
        is_refused(row, client.semaphore(name).acquire().await, name);
        let seats = client.expirable_semaphore(name);
        is_refused(row, seats.try_set_permits(1).await, name);
        is_refused(row, seats.acquire().await, name);
        is_refused(row, client.count_down_latch(name).count().await, name);
        is_refused(row, client.count_down_latch(name).wait().await, name);
    }
    // The channel of a latch has its own braces.
    let latch = client.count_down_latch("{tag}:jobs");
    is_refused(row, latch.try_set_count(1).await, "{tag}:jobs");
    // With a hash tag, or without any braces, all names of a primitive are in one slot.
    for name in ["f61:{tag}:k", "f61:k"] {
        let fair = client.fair_lock(name).acquire().await.unwrap();
        fair.release().await.unwrap();
        let fenced = client.fenced_lock(name).acquire().await.unwrap();
        fenced.release().await.unwrap();
        let rw = client.rw_lock(format!("{name}:rw"));
        let reader = rw.read().acquire().await.unwrap();
        reader.release().await.unwrap();
    }
    row.injected("name accepted", 2);
}

rows! {
    Threads, left to "engines":
        f59_hot_slot_that_moves_to_and_fro_costs_no_error,
        f59_scripts_with_several_keys_survive_moves_of_their_slot,
        f59_slot_between_two_nodes_for_seconds_costs_no_error,
        f59_node_that_joins_gets_slots_and_leaves_is_followed_and_forgotten;
    Real:
        f59_hold_whose_slot_moves_is_renewed_at_its_new_node,
        f59_readers_whose_timeouts_are_at_the_other_node_keep_their_locks,
        f61_names_of_several_slots_are_refused_and_nothing_is_sent;
}

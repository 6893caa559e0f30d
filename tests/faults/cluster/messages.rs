//! Row 60: subscriptions whose slot moves.

use std::time::Duration;

use distlock::{Builder, Client, PubSub};
use distlock_tests::{RedisCluster, eventually_eq};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::free;
use crate::row::{Row, rows};
use crate::support::{SOON, waiting};

/// A waiter without messages looks at its key after 4 s at least. A message is faster.
const TOLD: Duration = Duration::from_millis(3_500);

/// Waiters of several keys in the slot of `{hot}`, which moves while they wait.
async fn waiters_hear_after_a_move(row: &Row, set: impl Fn(Builder) -> Builder, sharded: bool) {
    let keys = 100;
    let cluster = RedisCluster::builder().replicas(false).start().await;
    let url = cluster.url();
    let holder = set(Client::builder()).connect(&url).await.unwrap();
    let waiter = set(Client::builder()).connect(&url).await.unwrap();
    let slot = cluster.slot_of("{hot}").await;
    let from = cluster.node_of(slot).await;
    let to = (from + 1) % 3;
    let mut guards = Vec::new();
    for n in 0..keys {
        guards.push(holder.lock(format!("{{hot}}:{n}")).acquire().await.unwrap());
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
    cluster.migrate(slot, to).await;
    row.injected("slot moved", 1);
    if sharded {
        // The old node has ended the subscriptions unasked. That, and no look at the keys, makes the client subscribe anew.
        let moved = Instant::now();
        listened(&cluster, to, keys, true).await;
        assert!(moved.elapsed() < row.stretch(TOLD), "{:?}", moved.elapsed());
    }
    let mut freed = Vec::new();
    for guard in guards {
        freed.push(Instant::now());
        guard.release().await.unwrap();
    }
    let mut longest = Duration::ZERO;
    while let Some(joined) = waiters.join_next().await {
        let (n, guard, at) = joined.unwrap();
        longest = longest.max(at.duration_since(freed[n]));
        guard.release().await.unwrap();
    }
    println!("the last of {keys} waiters was woken after {longest:?}");
    assert!(longest < row.stretch(TOLD), "{longest:?}");
    free(&cluster, &[holder, waiter]).await;
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

rows! {
    Real: f60_waiters_hear_of_releases_after_their_slot_has_moved;
    Real, left to "engines":
        f60_waiters_that_listen_both_ways_hear_after_a_move,
        f60_waiters_with_plain_messages_hear_after_a_move;
}

//! On a cluster and on a set with Sentinels, with a failover in between.

use std::sync::Arc;
use std::time::Duration;

use distlock_interop::{Actor, Call, Kind, Peer, Settings, Side};
use distlock_tests::{RedisCluster, SentinelSet, eventually, eventually_eq};
use serde_json::json;
use tokio::time::sleep;

use crate::case::{Case, cases};
use crate::stage::{DEADLINE, Lock, Stage, assert_by_message};
use crate::table::Row;

const KINDS: [Kind; 3] = [Kind::Reentrant, Kind::Fair, Kind::Semaphore];

/// The lease of both watchdogs.
const LEASE: u64 = 10_000;

/// Until a waiter sleeps. Which node has its subscription is not known here.
const ASLEEP: Duration = Duration::from_millis(500);

/// Clients find the new master within seconds.
const FOUND: u64 = 20_000;

async fn start(side: Side, url: String, both_messages: bool) -> Arc<Peer> {
    let settings = Settings {
        urls: vec![url],
        watchdog: LEASE,
        both_messages,
    };
    Peer::start(side, &settings).await
}

/// Each kind is held by one side, and handed to the other one by a release.
async fn contend(stage: &Stage, holder: &Arc<Peer>, waiter: &Arc<Peer>, when: &str) {
    for kind in KINDS {
        let lock = (kind, vec![format!("{} {when} {}", stage.name, kind.name())]);
        let (holder, waiter) = (holder.actor(kind.name()), waiter.actor(kind.name()));
        if kind == Kind::Semaphore {
            assert!(holder.count::<bool>("set_permits", &lock, 1).await);
        }
        hold_and_hand_over(&lock, &holder, &waiter, Some(0)).await;
    }
}

async fn hold_and_hand_over(lock: &Lock, holder: &Actor, waiter: &Actor, wait: Option<u64>) {
    holder.acquire(lock, wait).granted().await;
    assert!(
        waiter.acquire(lock, Some(0)).grant().await.is_none(),
        "held twice"
    );
    // Longer than the release needs to be heard of, and not a moment in which it is released.
    assert!(
        waiter.acquire(lock, Some(700)).grant().await.is_none(),
        "held twice"
    );
    let waiting = waiter.acquire(lock, None);
    // A waiter of Rust that is not asleep by then does without the message, which makes the case easier and not wrong.
    sleep(ASLEEP).await;
    if waiter.peer().side().is_java() {
        let waits = async || waiter.is_asleep().await || waiting.is_answered();
        eventually_eq(DEADLINE, format!("{waiter} to sleep"), true, waits).await;
    }
    if waiting.is_answered() {
        panic!("answered before the release: {:?}", waiting.answer().await);
    }
    let released = holder.release(lock).timed::<bool>().await;
    let granted = waiting.granted().await;
    assert!(granted.ended > released.began, "granted before the release");
    assert_by_message("the wake-up", released.began, granted.ended);
    waiter.release(lock).value::<bool>().await;
}

/// A hold that the replica had outlasts the failover, and is handed over on the new master.
async fn over_failover(
    stage: &Stage,
    holder: &Arc<Peer>,
    waiter: &Arc<Peer>,
    fails_over: impl Future<Output = usize>,
) {
    let lock = (Kind::Reentrant, vec![format!("{} held", stage.name)]);
    let (by, other) = (holder.actor("held"), waiter.actor("held"));
    let held = by.acquire(&lock, Some(0)).granted().await;
    fails_over.await;
    // Redisson 3.16.8 may answer during a failover that a thread has a lock that it has not: see the guide.
    let is_old = |side| side == Side::Java(Side::versions()[1]);
    let refused = async || match other.acquire(&lock, Some(0)).answer().await {
        Ok(answer) if answer.value.is_null() => Ok(()),
        Ok(_) if !is_old(stage.waiter) => panic!("held twice"),
        // Clients that still look for the new master get errors.
        answer => Err(format!("{answer:?}")),
    };
    eventually(DEADLINE, "a refusal by the new master", refused).await;
    // What Redis has decides.
    let rust = if stage.holder.is_java() { &other } else { &by };
    let holders = async || {
        let call = Call::new("holders", lock.0, &lock.1);
        let answer = rust.call(call).answer().await;
        answer.map_err(|failure| failure.to_string())
    };
    let holders = eventually(DEADLINE, "an answer of the new master", holders).await;
    assert_eq!(holders.value, json!([held.value.owner]), "held twice");
    let waiting = other.acquire(&lock, Some(FOUND));
    let released = async || match by.release(&lock).answer().await {
        // Its release fails as long as it does not know the new master.
        Err(failure) if is_old(stage.holder) => Err(failure.to_string()),
        answer => Ok(answer.expect("a release")),
    };
    let released = eventually(DEADLINE, "a release on the new master", released).await;
    let granted = waiting.granted().await;
    assert!(granted.ended > released.began, "granted before the release");
    other.release(&lock).value::<bool>().await;
}

async fn holds_and_hand_overs_on_a_cluster_and_after_a_failover(stage: Stage) {
    let cluster = RedisCluster::start().await;
    // Redisson before 3.22 does not know of sharded messages.
    let both = [stage.holder, stage.waiter].contains(&Side::Java(Side::versions()[1]));
    let holder = start(stage.holder, cluster.url(), both).await;
    let waiter = start(stage.waiter, cluster.url(), both).await;
    contend(&stage, &holder, &waiter, "before").await;
    let slot = cluster.slot_of(&format!("{} held", stage.name)).await;
    let master = cluster.node_of(slot).await;
    over_failover(&stage, &holder, &waiter, cluster.fail_over(master)).await;
    contend(&stage, &holder, &waiter, "after").await;
}

async fn holds_and_hand_overs_with_sentinels_and_after_a_failover(stage: Stage) {
    // Redisson 3.16.8 does not carry out what it begins while a Sentinel calls a replica down, and a busy machine makes a
    // replica late.
    let set = SentinelSet::builder().patient().start().await;
    let holder = start(stage.holder, set.url(), false).await;
    let waiter = start(stage.waiter, set.url(), false).await;
    contend(&stage, &holder, &waiter, "before").await;
    over_failover(&stage, &holder, &waiter, set.fail_over()).await;
    contend(&stage, &holder, &waiter, "after").await;
}

pub(super) fn cases() -> Vec<Case> {
    [
        cases![Row::Cluster, Kind::Reentrant; holds_and_hand_overs_on_a_cluster_and_after_a_failover],
        cases![Row::Sentinel, Kind::Reentrant; holds_and_hand_overs_with_sentinels_and_after_a_failover],
    ]
    .concat()
}

//! Rows 42, 56 and 57 with Sentinels: what the promoted server does not know, and what it must know.

use std::time::Duration;

use distlock::test_util::connections;
use distlock::{Client, Error};
use distlock_tests::proxy::Role;
use distlock_tests::server::sentinel::SentinelSet;
use distlock_tests::{Flow, Select, Way, eventually, eventually_eq};
use tokio::time::sleep;

use crate::row::{Row, rows};
use crate::support::{
    SOON, assert_told_of_one, assert_told_of_too_few_replicas, client_with, idle, ms,
};

/// A failover takes some seconds: the Sentinels have to find out, to agree, and to elect.
const FAILOVER: Duration = Duration::from_secs(60);

/// Far longer than a test waits: no renewal finds a loss.
const LONG: Duration = Duration::from_secs(600);

async fn client(set: &SentinelSet) -> Client {
    let settings = |builder: distlock::Builder| {
        let builder = builder.watchdog_timeout(LONG);
        builder.unavailable_after(FAILOVER)
    };
    client_with(&set.url(), settings).await
}

/// A client whose grants so many replicas have to confirm.
async fn confirmed_client(set: &SentinelSet, replicas: u32, timeout: Duration) -> Client {
    let settings = |builder: distlock::Builder| {
        let builder = builder.watchdog_timeout(LONG).replicas(replicas, timeout);
        builder.unavailable_after(timeout * 2)
    };
    client_with(&set.url(), settings).await
}

async fn f42_hold_that_the_promoted_server_lacks_is_told_soon(row: &Row) {
    let mut set = SentinelSet::start().await;
    let client = client(&set).await;
    let kept = client.lock("kept").acquire().await.unwrap();
    set.wait_until_all_have("kept").await;
    set.cut_replicas().await;
    let lost = client.lock("lost").acquire().await.unwrap();
    let old = set.kill_master().await;
    set.reconnect_replicas();
    set.master_after(old).await;
    row.injected("failover to a replica that lacks a grant", 1);
    assert_told_of_one(row, lost, kept).await;
    free(&set, &[&client]).await;
}

async fn f56_grant_that_a_replica_has_survives_a_failover_by_sentinels(row: &Row) {
    let mut set = SentinelSet::start().await;
    // Both: the Sentinels may promote either.
    let confirmed = confirmed_client(&set, 2, FAILOVER).await;
    let master = set.master().await;
    set.cut_replicas().await;
    let grant = tokio::spawn(confirmed.lock("k").acquire().into_future());
    let granted = || set.server(master).keys();
    eventually_eq(
        SOON,
        "the grant at the master",
        vec!["k".to_owned()],
        granted,
    )
    .await;
    sleep(ms(100)).await;
    assert!(!grant.is_finished(), "given out before a replica has it");
    set.reconnect_replicas();
    let guard = grant.await.unwrap().unwrap();
    let old = set.kill_master().await;
    set.master_after(old).await;
    row.injected("failover", 1);
    let other = client(&set).await;
    // The promoted server has the grant.
    let refused = other.lock("k").acquire().wait(ms(500)).await;
    assert!(matches!(refused, Err(Error::Timeout { .. })));
    assert!(guard.is_held());
    guard.release().await.unwrap();
    set.server_mut(old).restart().await;
    let guard = confirmed.lock("k").acquire().wait(FAILOVER).await.unwrap();
    guard.release().await.unwrap();
    free(&set, &[&confirmed, &other]).await;
}

async fn f56_more_replicas_than_sentinels_know_are_told_with_both_numbers(row: &Row) {
    let set = SentinelSet::start().await;
    let more = |builder: distlock::Builder| {
        let builder = builder.replicas(3, ms(500)).response_timeout(SOON);
        builder.unavailable_after(ms(500))
    };
    let client = client_with(&set.url(), more).await;
    row.injected("grant with too few replicas", 1);
    assert_told_of_too_few_replicas(&client, "2 of 3 replicas").await;
    free(&set, &[&client]).await;
}

async fn f56_confirmation_of_the_old_master_that_comes_late_gives_nothing_out(row: &Row) {
    let set = SentinelSet::builder().proxies(true).start().await;
    let client = confirmed_client(&set, 1, FAILOVER).await;
    let lock = client.lock("k");
    lock.acquire().await.unwrap().release().await.unwrap();
    let in_use = || {
        let mut seen = connections(&client).into_iter();
        let seen = seen.find(|seen| seen.name.starts_with("confirmations"));
        seen.and_then(|seen| seen.in_use)
    };
    let before = in_use();
    let old = set.master().await;
    let replication = set
        .proxy(old)
        .flow(Select::REPLICAS, Way::Down, Flow::Stall);
    let grant = tokio::spawn(lock.acquire().into_future());
    let waits = || async {
        let clients = set.server(old).client_list().await;
        clients.iter().any(|one| one.field("flags").contains('b'))
    };
    eventually_eq(SOON, "a WAIT under way", true, waits).await;
    // The replicas get the grant, and the client does not hear of it.
    let answers = set
        .proxy(old)
        .flow(Select::COMMANDS, Way::Down, Flow::Stall);
    replication.lift();
    eventually_eq(SOON, "a WAIT under way", false, waits).await;
    let others = (0..3).filter(|at| *at != old);
    let others = others.map(|at| set.proxy(at).flow(Select::COMMANDS, Way::Down, Flow::Stall));
    let others: Vec<_> = others.collect();
    set.fail_over().await;
    let left = || async { in_use() != before };
    eventually_eq(FAILOVER, "the old master to be left", true, left).await;
    let open = || async {
        let connections = set.proxy(old).connections().into_iter();
        connections.filter(|one| one.role == Role::Commands).count()
    };
    assert!(open().await > 0, "the answer waits in the proxy");
    answers.lift();
    row.injected("confirmation by the old master", answers.hits());
    // The last one ends when its answer was read.
    eventually_eq(SOON, "connections to the old master", 0, open).await;
    sleep(ms(100)).await;
    assert!(
        !grant.is_finished(),
        "nobody but the old master has answered"
    );
    for stalled in others {
        stalled.lift();
    }
    let guard = grant.await.unwrap().unwrap();
    guard.release().await.unwrap();
    idle(&client).await;
}

async fn f57_master_behind_sentinels_that_lost_its_replicas_gives_nothing_out(row: &Row) {
    let mut set = SentinelSet::start().await;
    let confirmed = confirmed_client(&set, 1, ms(500)).await;
    set.cut_replicas().await;
    row.injected("master without its replicas", 1);
    let error = confirmed.lock("k").acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    set.reconnect_replicas();
    let again = || confirmed.lock("k").acquire().into_future();
    let guard = eventually(FAILOVER, "a grant that a replica has", again).await;
    guard.release().await.unwrap();
    free(&set, &[&confirmed]).await;
}

/// Completes when the clients keep nothing, and the master has no key.
async fn free(set: &SentinelSet, clients: &[&Client]) {
    for client in clients {
        idle(client).await;
    }
    let keys = async || set.server(set.master().await).keys().await;
    eventually_eq(SOON, "keys", Vec::<String>::new(), keys).await;
}

rows! {
    Real:
        f42_hold_that_the_promoted_server_lacks_is_told_soon,
        f56_grant_that_a_replica_has_survives_a_failover_by_sentinels,
        f56_confirmation_of_the_old_master_that_comes_late_gives_nothing_out,
        f56_more_replicas_than_sentinels_know_are_told_with_both_numbers,
        f57_master_behind_sentinels_that_lost_its_replicas_gives_nothing_out;
}

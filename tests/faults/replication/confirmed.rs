//! Row 56: grants that replicas confirm.

use std::time::Duration;

use distlock::test_util::connections;
use distlock::{Blocker, Builder, Client, Error};
use distlock_tests::any_lock::PERMITS;
use distlock_tests::{LockKind, RedisServer, eventually, eventually_eq};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::pair::{Pair, TIMEOUT, assert_unconfirmed};
use crate::row::{Row, rows};
use crate::support::{
    SOON, assert_told_of_too_few_replicas, client_with, default_client, free, idle, ms,
};

fn key(kind: LockKind) -> String {
    format!("{kind:?}")
}

/// Semaphores that have all permits.
async fn set_permits(client: &Client) {
    let permits = client.expirable_semaphore(key(LockKind::Permit));
    assert!(permits.try_set_permits(PERMITS).await.unwrap());
    let semaphore = client.semaphore(key(LockKind::Semaphore));
    assert!(semaphore.try_set_permits(PERMITS).await.unwrap());
}

async fn f56_grant_that_no_replica_has_is_not_given_out(row: &Row) {
    let mut pair = Pair::start().await;
    let short = |builder: Builder| builder.watchdog_timeout(ms(3_000));
    let plain = client_with(&pair.primary.url(), short).await;
    let confirmed = pair.confirmed_client().await;
    let kept = confirmed.lock("kept").acquire().await.unwrap();
    pair.cut().await;
    let forgotten = plain.lock("k").acquire().await.unwrap();
    assert_unconfirmed(&confirmed.lock("other").try_acquire().await.unwrap_err());
    pair.primary.kill();
    pair.promote().await;
    row.injected("failover to a replica that lacks a grant", 1);
    let next = default_client(&pair.replica.url()).await;
    // Without confirmation there are two holders, until the first one's lease is over.
    let second = next.lock("k").try_acquire().await.unwrap().expect("free");
    let was_beside = forgotten.is_held();
    println!("a second holder beside the first: {was_beside}");
    timeout(SOON, forgotten.lost()).await.expect("told");
    // What was confirmed is not granted again.
    assert!(next.lock("kept").try_acquire().await.unwrap().is_none());
    assert!(kept.is_held());
    second.release().await.unwrap();
}

async fn f56_every_kind_is_confirmed_or_undone(row: &Row) {
    let mut pair = Pair::start().await;
    // Its replica confirms soon, but maybe not within 500 ms of a busy machine.
    let patient = pair.client_that_waits(SOON).await;
    set_permits(&patient).await;
    for kind in LockKind::ON_ONE_SERVER {
        let guard = kind.lock(&patient, &key(kind)).acquire(None, None).await;
        let guard = guard.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let (here, there) = (pair.primary.keys().await, pair.replica.keys().await);
        assert_eq!(here, there, "{kind:?}");
        guard.release().await.unwrap();
    }
    let client = pair.confirmed_client().await;
    // It is still connected. Without a new write, WAIT would count what the replica had before.
    pair.replica.stop();
    row.injected("replica stopped", 1);
    let refused = LockKind::ON_ONE_SERVER.map(async |kind| {
        let lock = kind.lock(&client, &key(kind));
        assert_unconfirmed(&lock.try_acquire().await.expect_err("unconfirmed"));
        let waited = lock.acquire(Some(SOON), None).await;
        assert_unconfirmed(&waited.expect_err("unconfirmed"));
    });
    join_all(refused).await;
    pair.replica.cont();
    // What was granted and not confirmed is released in the background.
    idle(&client).await;
    let plain = default_client(&pair.primary.url()).await;
    for kind in LockKind::ON_ONE_SERVER {
        let guard = kind
            .lock(&plain, &key(kind))
            .acquire(Some(SOON), None)
            .await;
        let guard = guard.unwrap_or_else(|error| panic!("{kind:?} is not free: {error}"));
        guard.release().await.unwrap();
    }
    let permits = plain.expirable_semaphore(key(LockKind::Permit));
    let semaphore = plain.semaphore(key(LockKind::Semaphore));
    assert_eq!(
        permits.available_permits().await.unwrap(),
        i64::from(PERMITS)
    );
    assert_eq!(
        semaphore.available_permits().await.unwrap(),
        i64::from(PERMITS)
    );
    idle(&plain).await;
}

/// The key is free, so each first one in line is granted it, for nothing.
async fn f56_all_tasks_that_wait_for_a_free_key_are_told_of_the_outage_of_the_replica(row: &Row) {
    const TASKS: usize = 6;
    let mut pair = Pair::start().await;
    let client = pair.confirmed_client().await;
    let patient = |builder: Builder| {
        let builder = builder.replicas(1, TIMEOUT).unavailable_after(2 * SOON);
        builder.response_timeout(SOON)
    };
    let pair_of_clients = [
        client_with(&pair.primary.url(), patient).await,
        client_with(&pair.primary.url(), patient).await,
    ];
    // All are connected, and their scripts are known.
    for client in pair_of_clients.iter().chain([&client]) {
        drop(client.lock("k").acquire().await.unwrap());
        idle(client).await;
    }
    pair.replica.stop();
    row.injected("replica stopped", 1);
    // `confirmed_client` gives up after this.
    let gives_up = TIMEOUT * 2;
    let start = Instant::now();
    let told = join_all((0..TASKS).map(|_| client.lock("k").acquire().into_future())).await;
    println!("told after {:?}", start.elapsed());
    assert!(
        start.elapsed() < row.stretch(gives_up * 2),
        "one after another"
    );
    told.into_iter()
        .for_each(|waited| assert_unconfirmed(&waited.expect_err("unconfirmed")));
    idle(&client).await;
    // Two clients in turn, so that the grants of each are in the way of the other until they are withdrawn. Each has met the
    // outage.
    for client in &pair_of_clients {
        assert_unconfirmed(&client.lock("k").try_acquire().await.unwrap_err());
        idle(client).await;
    }
    let waits = (0..4).flat_map(|n| {
        let limited = |client: &Client| {
            let wait = gives_up + TIMEOUT * n / 4;
            client.lock("k").acquire().wait(wait).into_future()
        };
        pair_of_clients.iter().map(limited).collect::<Vec<_>>()
    });
    for waited in join_all(waits).await {
        let error = waited.expect_err("unconfirmed");
        assert!(error.is_unavailable() && !error.is_busy(), "{error}");
    }
    pair.replica.cont();
    let [one, other] = &pair_of_clients;
    free(&pair.primary, &[&client, one, other]).await;
}

/// What others can see of a lock: its owners with their counts, and how much of a lease is left, to a second.
async fn seen(server: &RedisServer, key: &str) -> (Vec<String>, u64) {
    let owners: Vec<String> = server.try_cli(&["HVALS", key]).await.unwrap();
    let left: u64 = server.try_cli(&["PTTL", key]).await.unwrap();
    (owners, left / 1_000)
}

/// The answer of WAIT is for the client that has asked. So the server has the same of a grant that no replica has as of a hold,
/// and a client that has met no outage learns that the key is held.
async fn f56_grant_that_waits_for_its_confirmation_is_a_hold_to_other_clients(row: &Row) {
    let pair = Pair::start().await;
    let client = pair.client_that_waits(SOON * 2).await;
    let other = pair.confirmed_client().await;
    drop(other.lock("first").acquire().await.unwrap());
    idle(&other).await;
    let held = client.lock("held").acquire().await.unwrap();
    let of_a_hold = seen(&pair.primary, "held").await;
    pair.cut().await;
    let waiting = tokio::spawn(client.lock("k").acquire().into_future());
    let granted = || async { pair.primary.keys().await.contains(&"k".to_owned()) };
    eventually_eq(SOON, "granted", true, granted).await;
    row.injected("grant that waits for its confirmation", 1);
    let (owners, left) = seen(&pair.primary, "k").await;
    assert_eq!(owners, of_a_hold.0);
    assert!(left.abs_diff(of_a_hold.1) <= 1, "{left} s");
    let told = other.lock("k").acquire().wait(Duration::ZERO).await;
    let error = told.expect_err("not confirmed");
    let is_held = matches!(
        &error,
        Error::Timeout {
            blocker: Blocker::Owner(Some(_)),
            ..
        }
    );
    assert!(is_held && error.is_busy(), "{error}");
    pair.join().await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    free(&pair.primary, &[&client, &other]).await;
}

async fn f56_waiter_is_granted_when_the_replica_is_back(row: &Row) {
    let pair = Pair::start().await;
    let patient = |builder: Builder| {
        let builder = builder.replicas(1, TIMEOUT).unavailable_after(2 * SOON);
        builder.response_timeout(SOON)
    };
    let client = client_with(&pair.primary.url(), patient).await;
    let held = client.lock("held").acquire().await.unwrap();
    pair.cut().await;
    row.injected("replica cut off", 1);
    let waiting = client.lock("k").acquire().wait(2 * SOON);
    let waiting = tokio::spawn(waiting.into_future());
    // A release does not wait behind what is not confirmed, and neither does a client without confirmation.
    let attempts = pair.primary.command_calls("wait").await;
    eventually_eq(SOON, "an attempt", true, || async {
        pair.primary.command_calls("wait").await > attempts
    })
    .await;
    held.release().await.unwrap();
    let plain = default_client(&pair.primary.url()).await;
    drop(plain.lock("other").acquire().await.unwrap());
    assert!(!waiting.is_finished());
    pair.join().await;
    let guard = waiting.await.unwrap().unwrap();
    assert!(pair.replica.keys().await.contains(&"k".to_owned()));
    guard.release().await.unwrap();
    free(&pair.primary, &[&client, &plain]).await;
}

async fn f56_renewals_go_on_while_a_grant_waits_for_its_confirmation(row: &Row) {
    const LEASE: Duration = ms(1_500);
    let pair = Pair::start().await;
    // Far longer than a lease.
    let patient = |builder: Builder| {
        let builder = builder.replicas(1, SOON * 2).response_timeout(SOON);
        builder.unavailable_after(SOON * 6).watchdog_timeout(LEASE)
    };
    let client = client_with(&pair.primary.url(), patient).await;
    let held = client.lock("held").acquire().await.unwrap();
    pair.cut().await;
    let waiting = tokio::spawn(client.lock("k").acquire().into_future());
    let blocked = || async {
        let clients = pair.primary.client_list().await;
        let waits = clients.iter().any(|one| one.field("cmd") == "wait");
        if waits { Ok(()) } else { Err("no WAIT") }
    };
    eventually(SOON, "a WAIT under way", blocked).await;
    row.injected("WAIT under way for two leases", 1);
    sleep(LEASE * 2).await;
    assert!(held.is_held() && !waiting.is_finished());
    pair.join().await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    free(&pair.primary, &[&client]).await;
}

/// The server answers no PING behind a WAIT.
async fn f56_sign_of_life_waits_for_the_confirmation_before_it(row: &Row) {
    let mut pair = Pair::start().await;
    // Two answers to PINGs that were late by the response timeout alone would both be within one WAIT.
    let impatient = |builder: Builder| {
        let builder = builder.replicas(1, ms(6_000)).response_timeout(ms(1_000));
        builder.ping_interval(ms(200)).unavailable_after(ms(3_000))
    };
    let client = client_with(&pair.primary.url(), impatient).await;
    drop(client.lock("k").acquire().await.unwrap());
    idle(&client).await;
    let in_use = || {
        let seen = connections(&client).into_iter();
        let seen = seen.map(|seen| (seen.name, seen.in_use));
        seen.collect::<Vec<_>>()
    };
    let before = in_use();
    pair.replica.stop();
    row.injected("replica stopped", 1);
    assert_unconfirmed(&client.lock("k").try_acquire().await.unwrap_err());
    assert_eq!(in_use(), before, "a connection was replaced");
    pair.replica.cont();
    free(&pair.primary, &[&client]).await;
}

async fn f56_grants_that_come_together_are_confirmed_together(row: &Row) {
    const TASKS: u64 = 64;
    let pair = Pair::start().await;
    let client = pair.confirmed_client().await;
    // The first ones come while the connection is made.
    drop(client.lock("first").acquire().await.unwrap());
    let waits = pair.primary.command_calls("wait").await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..TASKS {
        let lock = client.lock(format!("k:{n}"));
        tasks.spawn(async move {
            for _ in 0..10 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let waits = pair.primary.command_calls("wait").await - waits;
    println!("{} grants, {waits} times WAIT", TASKS * 10);
    assert!(waits < TASKS * 10 / 2, "{waits}");
    row.injected("grants confirmed", TASKS * 10);
}

async fn f56_more_replicas_than_the_server_has_are_told_with_both_numbers(row: &Row) {
    let pair = Pair::start().await;
    let more = |builder: Builder| {
        let builder = builder.replicas(3, TIMEOUT).unavailable_after(TIMEOUT);
        builder.response_timeout(SOON)
    };
    let client = client_with(&pair.primary.url(), more).await;
    row.injected("grant with too few replicas", 1);
    assert_told_of_too_few_replicas(&client, "1 of 3 replicas").await;
    free(&pair.primary, &[&client]).await;
}

async fn f56_numbers_of_replicas_that_cannot_be_are_refused(row: &Row) {
    row.injected("odd settings", 1);
    for (count, timeout) in [(0, TIMEOUT), (1, Duration::ZERO), (1, Duration::MAX)] {
        let builder = Client::builder().replicas(count, timeout);
        let error = builder.connect("redis://127.0.0.1:1").await.unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        assert!(error.to_string().contains("replicas"), "{error}");
    }
    let builder = Client::builder().restart_grace(Duration::MAX);
    let error = builder.connect("redis://127.0.0.1:1").await.unwrap_err();
    assert!(error.to_string().contains("restart_grace"), "{error}");
}

async fn f56_right_to_wait_is_told_if_it_is_missing(row: &Row) {
    let pair = Pair::start().await;
    let acl = [
        "ACL", "SETUSER", "shop", "on", "nopass", "~*", "&*", "+@all",
    ];
    pair.primary.cli(&[&acl[..], &["-wait"]].concat()).await;
    row.injected("right taken away", 1);
    let url = pair.primary.url().replace("redis://", "redis://shop:pw@");
    let client = client_with(&url, |builder| builder.replicas(1, TIMEOUT)).await;
    let error = client.lock("k").acquire().wait(SOON).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    free(&pair.primary, &[&client]).await;
}

rows! {
    Real: f56_grant_that_no_replica_has_is_not_given_out,
        f56_every_kind_is_confirmed_or_undone,
        f56_waiter_is_granted_when_the_replica_is_back,
        f56_all_tasks_that_wait_for_a_free_key_are_told_of_the_outage_of_the_replica,
        f56_grant_that_waits_for_its_confirmation_is_a_hold_to_other_clients,
        f56_renewals_go_on_while_a_grant_waits_for_its_confirmation,
        f56_sign_of_life_waits_for_the_confirmation_before_it,
        f56_grants_that_come_together_are_confirmed_together,
        f56_more_replicas_than_the_server_has_are_told_with_both_numbers,
        f56_numbers_of_replicas_that_cannot_be_are_refused,
        f56_right_to_wait_is_told_if_it_is_missing;
}

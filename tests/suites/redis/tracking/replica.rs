//! A master that has become an empty replica: its data is that of the new master from then on. Whether the new master has a hold, it
//! cannot say.

use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::{RedisServer, eventually_eq};
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout;

use super::super::{SOON, client_of_lease};
use super::{LONG, told, tracked};

/// A server that follows an empty master from now on, once it has no key any more.
async fn emptied(server: &RedisServer, empty: &RedisServer) {
    let port = empty.addr().port().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let keys = || async { server.keys().await.len() };
    eventually_eq(SOON, "keys", 0, keys).await;
}

/// Completes when the server has refused a write.
async fn refused(server: &RedisServer) {
    let refused = || async {
        let errors = server.info("errorstats").await;
        errors.contains_key("errorstat_READONLY")
    };
    eventually_eq(2 * SOON, "a refusal by the replica", true, refused).await;
}

/// A master that sends its data at once.
async fn empty_master() -> RedisServer {
    let builder = RedisServer::builder();
    builder.arg("--repl-diskless-sync-delay", "0").start().await
}

#[tokio::test]
async fn master_that_has_become_an_empty_replica_ends_no_hold() {
    let (server, empty) = (RedisServer::start().await, empty_master().await);
    let client = client_of_lease(&server, LONG).await;
    let guard = client.lock("k").acquire().await.unwrap();
    tracked(&server, 1).await;
    emptied(&server, &empty).await;
    refused(&server).await;
    assert!(guard.is_held());
    server.cli(&["REPLICAOF", "NO", "ONE"]).await;
    told(&[guard], "a master again, without the key").await;
}

#[tokio::test]
async fn renewal_by_a_master_that_has_become_an_empty_replica_ends_no_hold_of_any_kind() {
    let empty = empty_master().await;
    let kinds = ["lock", "fair", "fenced", "read", "write", "permit"];
    join_all(kinds.map(|kind| renewed_by(&empty, kind))).await;
}

/// The renewals of this hold are all that the client sends.
async fn renewed_by(empty: &RedisServer, kind: &str) {
    let server = RedisServer::start().await;
    // It renews every 8 s, and ends its holds by its own clock long after that.
    let builder = Client::builder().watchdog_timeout(Duration::from_secs(24));
    let builder = builder.track_holds(false);
    let client = builder.connect(&server.url()).await.unwrap();
    let (mut lock, mut fenced, mut permit) = (None, None, None);
    match kind {
        "fenced" => fenced = Some(client.fenced_lock("k").acquire().await.unwrap()),
        "permit" => {
            let seats = client.expirable_semaphore("k");
            assert!(seats.try_set_permits(1).await.unwrap());
            permit = Some(seats.acquire().await.unwrap());
        }
        "fair" => lock = Some(client.fair_lock("k").acquire().await.unwrap()),
        "read" => lock = Some(client.rw_lock("k").read().acquire().await.unwrap()),
        "write" => lock = Some(client.rw_lock("k").write().acquire().await.unwrap()),
        _ => lock = Some(client.lock("k").acquire().await.unwrap()),
    }
    let is_held = || {
        let lock = lock.as_ref().map(|guard| guard.is_held());
        let fenced = fenced.as_ref().map(|guard| guard.is_held());
        let permit = permit.as_ref().map(|guard| guard.is_held());
        lock.or(fenced).or(permit).unwrap()
    };
    emptied(&server, empty).await;
    refused(&server).await;
    assert!(is_held(), "{kind}");
}

/// Readers are the one kind whose release only looks if it finds nothing.
#[tokio::test]
async fn release_by_a_master_that_has_become_an_empty_replica_is_not_taken_for_a_loss() {
    let (server, empty) = (RedisServer::start().await, empty_master().await);
    let builder = Client::builder().watchdog_timeout(LONG);
    let builder = builder.unavailable_after(Duration::from_secs(3));
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.rw_lock("k").read().acquire().await.unwrap();
    emptied(&server, &empty).await;
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::Unavailable { .. })),
        "{released:?}"
    );
    refused(&server).await;
}

#[tokio::test]
async fn hold_that_is_attached_at_a_master_that_has_become_an_empty_replica_is_not_lost() {
    let (server, empty) = (RedisServer::start().await, empty_master().await);
    let builder = Client::builder().watchdog_timeout(LONG);
    let builder = builder.unavailable_after(Duration::from_secs(3));
    let client = builder.connect(&server.url()).await.unwrap();
    let detached = client.lock("k").acquire().await.unwrap().detach().unwrap();
    emptied(&server, &empty).await;
    let attached = timeout(SOON, client.attach(&detached))
        .await
        .expect("an answer");
    assert!(
        matches!(attached, Err(Error::Unavailable { .. })),
        "{attached:?}"
    );
    refused(&server).await;
}

/// What it lacks says nothing about the number: the new master may have it.
#[tokio::test]
async fn waiters_at_a_master_that_has_become_an_empty_replica_are_not_told_of_a_loss() {
    let empty = empty_master().await;
    let kinds = ["semaphore", "permit", "latch"];
    join_all(kinds.map(|kind| waits_at(&empty, kind))).await;
}

async fn waits_at(empty: &RedisServer, kind: &str) {
    let server = RedisServer::start().await;
    let builder = Client::builder().watchdog_timeout(LONG);
    let builder = builder.unavailable_after(Duration::from_secs(3));
    let client = builder.connect(&server.url()).await.unwrap();
    let waiting: BoxFuture<'static, Result<(), Error>> = match kind {
        "semaphore" => {
            let pool = client.semaphore("k");
            assert!(pool.try_set_permits(0).await.unwrap());
            Box::pin(async move { pool.acquire().await.map(drop) })
        }
        "permit" => {
            let seats = client.expirable_semaphore("k");
            assert!(seats.try_set_permits(0).await.unwrap());
            Box::pin(async move { seats.acquire().await.map(drop) })
        }
        _ => {
            let latch = client.count_down_latch("k");
            assert!(latch.try_set_count(1).await.unwrap());
            Box::pin(async move { latch.wait().await })
        }
    };
    let waiting = tokio::spawn(waiting);
    let channel = match kind {
        "latch" => "redisson_countdownlatch__channel__{k}",
        _ => "redisson_sc:{k}",
    };
    let listeners = || server.pubsub_numsub(channel);
    eventually_eq(SOON, "listeners", 1, listeners).await;
    emptied(&server, empty).await;
    let waited = timeout(2 * SOON, waiting).await.expect("an answer");
    let waited = waited.unwrap();
    assert!(
        matches!(waited, Err(Error::Unavailable { .. })),
        "{kind}: {waited:?}"
    );
}

#[tokio::test]
async fn master_that_has_become_an_empty_replica_does_not_say_that_a_key_was_free() {
    let (server, empty) = (RedisServer::start().await, empty_master().await);
    // A client each: one that was refused a write uses the server no more.
    let mut clients = Vec::new();
    let kinds = [
        "lock",
        "fair",
        "read",
        "write",
        "semaphore",
        "permit",
        "latch",
    ];
    for kind in kinds {
        let builder = Client::builder().unavailable_after(Duration::from_secs(3));
        clients.push((kind, builder.connect(&server.url()).await.unwrap()));
    }
    emptied(&server, &empty).await;
    join_all(clients.into_iter().map(async |(kind, client)| {
        let freed = match kind {
            "lock" => client.lock("k").force_release().await,
            "fair" => client.fair_lock("k").force_release().await,
            "read" => client.rw_lock("k").read().force_release().await,
            "write" => client.rw_lock("k").write().force_release().await,
            "semaphore" => client.semaphore("k").delete().await,
            "permit" => client.expirable_semaphore("k").delete().await,
            _ => client.count_down_latch("k").delete().await,
        };
        assert!(freed.is_err(), "{kind}: {freed:?}");
    }))
    .await;
}

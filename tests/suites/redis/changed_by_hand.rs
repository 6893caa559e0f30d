//! Keys that change without a message: deleted by hand, cut short by an operator, or changed by a client that publishes
//! nothing. The first waiter looks at its key now and then, long before the lease that it was told ends.

use std::time::Duration;

use distlock::{Client, Error, MemoryServer};
use distlock_tests::{RedisServer, eventually_eq};
use tokio::time::timeout;

/// The owner's lease: far beyond the end of the test.
const LEASE_MS: &str = "3600000";

/// Several times the 5 s after which a waiter looks at its key.
const SOON: Duration = Duration::from_secs(60);
const FOREIGN: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";

async fn stage(channel: &str, command: &[&str]) -> (RedisServer, Client) {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    server.cli(command).await;
    server.cli(&["PEXPIRE", "k", LEASE_MS]).await;
    assert_eq!(server.pubsub_numsub(channel).await, 0);
    (server, client)
}

/// Completes when the waiter listens and sleeps.
async fn waits(server: &RedisServer, channel: &str) {
    eventually_eq(SOON, "listeners", 1, || server.pubsub_numsub(channel)).await;
}

#[tokio::test]
async fn lock_that_was_deleted_is_granted() {
    let channel = "redisson_lock__channel:{k}";
    let (server, client) = stage(channel, &["HSET", "k", FOREIGN, "1"]).await;
    let waiter = tokio::spawn(client.lock("k").acquire().into_future());
    waits(&server, channel).await;
    server.cli(&["DEL", "k"]).await;
    let guard = timeout(SOON, waiter).await.expect("granted");
    guard.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn lock_whose_lease_was_cut_short_is_granted_after_its_new_end() {
    let channel = "redisson_lock__channel:{k}";
    let (server, client) = stage(channel, &["HSET", "k", FOREIGN, "1"]).await;
    let waiter = tokio::spawn(client.fenced_lock("k").acquire().into_future());
    waits(&server, channel).await;
    server.cli(&["PEXPIRE", "k", "6000"]).await;
    let guard = timeout(SOON, waiter).await.expect("granted");
    guard.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn reader_gets_in_beside_the_reader_that_a_writer_became() {
    let channel = "redisson_rwlock:{k}";
    let (writer, reader) = (format!("{FOREIGN}:write"), FOREIGN);
    let fields = ["HSET", "k", "mode", "write", &writer, "1", reader, "1"];
    let (server, client) = stage(channel, &fields).await;
    let waiter = tokio::spawn(client.rw_lock("k").read().acquire().into_future());
    waits(&server, channel).await;
    // As Redisson's `unlock` of the write lock does, which publishes nothing then.
    server.cli(&["HSET", "k", "mode", "read"]).await;
    server.cli(&["HDEL", "k", &writer]).await;
    let guard = timeout(SOON, waiter).await.expect("granted");
    guard.unwrap().unwrap().release().await.unwrap();
}

/// A killed reader then keeps no writer out for ever.
#[tokio::test]
async fn read_lock_whose_lease_was_removed_gets_one_from_its_next_reader() {
    let fields = ["HSET", "k", "mode", "read", FOREIGN, "1"];
    let (server, client) = stage("redisson_rwlock:{k}", &fields).await;
    let timeout_key = format!("{{k}}:{FOREIGN}:rwlock_timeout:1");
    server
        .cli(&["SET", &timeout_key, "1", "PX", LEASE_MS])
        .await;
    server.cli(&["PERSIST", "k"]).await;
    let lease = Duration::from_secs(60);
    let reader = client.rw_lock("k").read().acquire().lease(lease);
    let reader = reader.await.unwrap();
    assert!(server.try_cli::<i64>(&["PTTL", "k"]).await.unwrap() > 0);
    reader.release().await.unwrap();
}

#[tokio::test]
async fn permits_of_a_semaphore_that_were_set_by_hand_are_granted() {
    let channel = "redisson_sc:{k}";
    let (server, client) = stage(channel, &["SET", "k", "1"]).await;
    let seats = client.semaphore("k");
    let waiter = tokio::spawn(seats.acquire_many(2).into_future());
    waits(&server, channel).await;
    server.cli(&["SET", "k", "2"]).await;
    let permits = timeout(SOON, waiter).await.expect("granted");
    permits.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn key_that_becomes_a_value_of_another_type_is_told() {
    for kind in ["lock", "fair", "fenced", "read", "write"] {
        let is_rw = kind == "read" || kind == "write";
        let channel = if is_rw {
            "redisson_rwlock:{k}"
        } else {
            "redisson_lock__channel:{k}"
        };
        let writer = format!("{FOREIGN}:write");
        let words: &[&str] = if is_rw {
            &["HSET", "k", "mode", "write", &writer, "1"]
        } else {
            &["HSET", "k", FOREIGN, "1"]
        };
        let (server, client) = stage(channel, words).await;
        let waiter = tokio::spawn(async move {
            match kind {
                "lock" => client.lock("k").acquire().await.map(drop),
                "fair" => client.fair_lock("k").acquire().await.map(drop),
                "fenced" => client.fenced_lock("k").acquire().await.map(drop),
                "read" => client.rw_lock("k").read().acquire().await.map(drop),
                _ => client.rw_lock("k").write().acquire().await.map(drop),
            }
        });
        if kind == "fair" {
            // Its channel has the name of its owner.
            let queued = || async { server.keys().await.len() > 1 };
            eventually_eq(SOON, "a place in the queue", true, queued).await;
        } else {
            waits(&server, channel).await;
        }
        server.cli(&["SET", "k", "x"]).await;
        let waited = timeout(SOON, waiter).await.expect("an answer").unwrap();
        assert!(
            matches!(waited, Err(Error::WrongType { .. })),
            "{kind}: {waited:?}"
        );
    }
}

/// Memory has no command that does this, but a key can be forgotten there.
#[tokio::test(start_paused = true)]
async fn key_that_becomes_a_value_of_another_type_is_told_in_memory() {
    for kind in ["lock", "fenced", "read", "write"] {
        let server = MemoryServer::new();
        let client = Client::builder().in_memory(&server).unwrap();
        let other = Client::builder().in_memory(&server).unwrap();
        let writer = client.rw_lock("k").write();
        let lock = client.lock("k");
        let _held = if kind == "read" || kind == "write" {
            writer.acquire().await.unwrap()
        } else {
            lock.acquire().await.unwrap()
        };
        let waiter = tokio::spawn(async move {
            match kind {
                "lock" => other.lock("k").acquire().await.map(drop),
                "fenced" => other.fenced_lock("k").acquire().await.map(drop),
                "read" => other.rw_lock("k").read().acquire().await.map(drop),
                _ => other.rw_lock("k").write().acquire().await.map(drop),
            }
        });
        server.until_waiting("k", 1).await;
        server.forget("k");
        let set = client.semaphore("k").try_set_permits(1).await;
        assert!(set.unwrap());
        let waited = timeout(SOON, waiter).await.expect("an answer").unwrap();
        assert!(
            matches!(waited, Err(Error::WrongType { .. })),
            "{kind}: {waited:?}"
        );
    }
}

//! Keys, fields, TTLs, channels and messages as Redisson has them.

use std::cell::Cell;
use std::time::Duration;

use distlock::{Client, Error};
use distlock_tests::{BY_MESSAGE, Leaks, RedisServer, eventually, eventually_eq};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::redis::{SOON, client, client_of_lease, listened, ms};

const FOREIGN: &str = "0ddad9e6-60bc-45a5-8797-1987353a9077:1";

#[tokio::test]
async fn held_lock_is_a_hash_of_one_owner_with_count_and_ttl() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.unwrap();
    let fields = server.hgetall("order:42").await;
    assert_eq!(
        fields,
        [(guard.owner().to_string(), String::from("1"))].into()
    );
    let ttl = server.pttl("order:42").await;
    assert!((20_000..=30_000).contains(&ttl), "{ttl}");
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn count_of_entries_follows_into_the_server() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let count = || async { server.hgetall("k").await.into_values().next() };
    let again = guard.reenter().unwrap();
    eventually_eq(SOON, "the count", Some(String::from("2")), count).await;
    guard.release().await.unwrap();
    eventually_eq(SOON, "the count", Some(String::from("1")), count).await;
    again.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn fixed_lease_is_the_ttl_and_prefix_is_in_the_name() {
    let server = RedisServer::start().await;
    let client = Client::builder()
        .key_prefix("shop:")
        .connect(&server.url())
        .await
        .unwrap();
    let _guard = client
        .lock("k")
        .acquire()
        .lease(Duration::from_secs(100))
        .await
        .unwrap();
    let ttl = server.pttl("shop:k").await;
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
}

in_real_time!(ms(500); watchdog_renews_at_a_third_of_the_lease);

async fn watchdog_renews_at_a_third_of_the_lease() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, ms(3_000)).await;
    let _guard = client.lock("k").acquire().await.unwrap();
    let lowest = Cell::new(i64::MAX);
    for _ in 0..3 {
        // Down from a renewal, and up again by the next one.
        eventually(SOON, "the lease to run down", || async {
            let ttl = server.pttl("k").await;
            lowest.set(lowest.get().min(ttl));
            (ttl < 2_400).then_some(()).ok_or(ttl)
        })
        .await;
        eventually(SOON, "a renewal", || async {
            let ttl = server.pttl("k").await;
            (ttl > 2_600).then_some(()).ok_or(ttl)
        })
        .await;
    }
    assert!(lowest.get() > 0, "the key was gone in between");
}

#[tokio::test]
async fn release_and_force_release_publish_the_single_byte_0() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    for (key, channel) in [
        ("order:42", "redisson_lock__channel:{order:42}"),
        ("{cart:1}:lock", "redisson_lock__channel:{cart:1}:lock"),
    ] {
        let mut messages = server.client().get_async_pubsub().await.unwrap();
        messages.subscribe(channel).await.unwrap();
        let mut messages = messages.into_on_message();
        let lock = client.lock(key);
        lock.acquire().await.unwrap().release().await.unwrap();
        let guard = lock.acquire().await.unwrap();
        assert!(lock.force_release().await.unwrap() && !lock.force_release().await.unwrap());
        drop(guard);
        for _ in 0..2 {
            let message = timeout(SOON, messages.next()).await.unwrap().unwrap();
            assert_eq!(message.get_payload_bytes(), b"0");
        }
    }
}

#[tokio::test]
async fn redissons_hold_keeps_us_out_and_its_release_wakes_us() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    server.cli(&["HSET", "k", FOREIGN, "2"]).await;
    server.cli(&["PEXPIRE", "k", "30000"]).await;
    let lock = client.lock("k");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let holders = lock.holders().await.unwrap();
    assert_eq!((holders[0].owner.as_str(), holders[0].count), (FOREIGN, 2));
    let waiter = tokio::spawn(lock.acquire().into_future());
    listened(&server, "k", 1).await;
    server.cli(&["DEL", "k"]).await;
    server
        .cli(&["PUBLISH", "redisson_lock__channel:{k}", "0"])
        .await;
    drop(
        timeout(BY_MESSAGE, waiter)
            .await
            .expect("woken by the message")
            .unwrap()
            .unwrap(),
    );
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_sent() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let long = "k".repeat(4_097);
    let refused = [
        client.lock("").acquire().await.unwrap_err(),
        client.lock(long).acquire().await.unwrap_err(),
        client
            .lock("k")
            .acquire()
            .wait(Duration::from_secs(400 * 24 * 3600))
            .await
            .unwrap_err(),
    ];
    assert!(refused.iter().all(Error::is_permanent), "{refused:?}");
    assert_eq!(
        server.command_calls("evalsha").await + server.command_calls("eval").await,
        1,
        "more than the check of commands at connect"
    );
}

#[tokio::test]
async fn nothing_is_left_after_the_last_handle_has_gone() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    {
        let (one, two) = (client(&server).await, client(&server).await);
        let guard = one.lock("k").acquire().await.unwrap();
        let waiter = tokio::spawn(two.lock("k").acquire().into_future());
        listened(&server, "k", 1).await;
        drop(guard);
        drop(timeout(SOON, waiter).await.unwrap().unwrap().unwrap());
    }
    leaks.check(&server, "").await;
}

//! What a force-release must not delete.

use distlock::{Client, Error, ForceRelease, Primitive};
use distlock_tests::{RedisServer, rights};

use crate::redis::client;

#[tokio::test]
async fn force_release_deletes_neither_data_nor_a_read_write_lock() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let reading = client.rw_lock("rw").read().acquire().await.unwrap();
    let writing = client.rw_lock("wr").write().acquire().await.unwrap();
    server.cli(&["HSET", "cart", "item:7", "3"]).await;
    server
        .cli(&["HSET", "user", "name", "ann", "age", "7"])
        .await;
    for key in ["rw", "wr", "cart", "user"] {
        for forced in [
            client.lock(key).force_release().await,
            client.fair_lock(key).force_release().await,
        ] {
            let error = forced.unwrap_err();
            assert!(matches!(error, Error::WrongType { .. }), "{key}: {error}");
        }
        let exists: u64 = server.try_cli(&["EXISTS", key]).await.unwrap();
        assert_eq!(exists, 1, "{key}");
    }
    reading.release().await.unwrap();
    writing.release().await.unwrap();
    for lock in [client.lock("k"), client.lock("kept")] {
        let guard = lock.acquire().await.unwrap();
        assert!(lock.force_release().await.unwrap());
        assert!(!lock.force_release().await.unwrap());
        drop(guard);
    }
}

#[tokio::test]
async fn data_of_another_program_that_was_seen_is_not_freed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    server.cli(&["SET", "text", "not a number"]).await;
    server.cli(&["HSET", "cart", "item:7", "3"]).await;
    for key in ["text", "cart"] {
        let seen = client.inspect(key).await.unwrap();
        assert_eq!(seen.primitive, Primitive::OtherData);
        let error = client.force_release(&seen).await.unwrap_err();
        assert!(matches!(error, Error::WrongType { .. }), "{key}: {error}");
        let exists: u64 = server.try_cli(&["EXISTS", key]).await.unwrap();
        assert_eq!(exists, 1, "{key}");
    }
}

/// Such a user may not use the queue of a fair lock, and a plain lock has none.
#[tokio::test]
async fn user_of_plain_locks_who_may_look_at_them_frees_those_that_were_seen() {
    let server = RedisServer::start().await;
    let rights = [rights::of(rights::LOCKS), rights::of(rights::LOOKS)].concat();
    server.set_user("shop", &rights).await;
    let url = format!("redis://shop:{}@{}", rights::PASSWORD, server.addr());
    let client = Client::builder().key_prefix("shop:").connect(&url).await;
    let client = client.unwrap();
    for is_fenced in [false, true] {
        let held = client.lock("k").acquire().await.unwrap();
        if is_fenced {
            let token = ["SET", "redisson_lock_token:{shop:k}", "7"];
            server.cli(&token).await;
        }
        let seen = client.inspect("k").await.unwrap();
        let freed = client.force_release(&seen).await.unwrap();
        assert_eq!(freed, ForceRelease::Freed, "{seen:?}");
        drop(held);
    }
}

/// Nobody waits in it, and the lock is freed as a plain one.
#[tokio::test]
async fn lock_beside_other_data_in_place_of_a_queue_is_freed() {
    let server = RedisServer::start().await;
    let client = client(&server).await;
    let held = client.lock("k").acquire().await.unwrap();
    server.cli(&["SET", "redisson_lock_queue:{k}", "x"]).await;
    let seen = client.inspect("k").await.unwrap();
    let freed = client.force_release(&seen).await.unwrap();
    assert_eq!(freed, ForceRelease::Freed);
    drop(held);
}

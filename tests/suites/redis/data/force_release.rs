//! What a force-release must not delete.

use distlock::{Error, Primitive};
use distlock_tests::RedisServer;

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

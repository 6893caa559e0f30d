//! The leak check for open files. They belong to the process, so this test is alone in its own.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs::File;
use std::time::Duration;

use distlock_tests::{Leaks, Proxy, RedisServer};

#[tokio::test]
async fn a_planted_file_is_found_and_a_closed_one_is_not() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await.with_files();
    let planted = File::open("/dev/null").unwrap();
    let left = leaks
        .settle(&server, "", Duration::from_secs(2))
        .await
        .unwrap_err();
    assert!(left.contains("1 files"), "{left}");
    drop(planted);

    let leaks = Leaks::baseline(&server).await.with_files();
    let proxy = Proxy::start(server.addr()).await;
    let client = redis::Client::open(proxy.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let other = RedisServer::start().await;
    drop((connection, proxy, other));
    leaks.check(&server, "").await;
}

//! The leak check finds what was planted, and nothing where nothing is.

use std::net::TcpStream;
use std::time::Duration;

use distlock_tests::{Leaks, Pulse, RedisServer};
use tokio::time::sleep;

use super::{BRIEF, SOON};

/// Chaos runs check from spawned tasks.
fn sendable<T: Send>(check: T) -> T {
    check
}

#[tokio::test]
async fn a_clean_test_is_quiet_at_once() {
    let pulse = Pulse::start();
    let mut server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    drop(server.connection().await);
    server.restart().await;
    let took = sendable(leaks.settle(&server, "", SOON)).await.unwrap();
    assert!(took < pulse.stretch(Duration::from_secs(1)), "{took:?}");
}

#[tokio::test]
async fn a_planted_key_is_found() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    server.cli(&["SET", "queue:{shop:1}", "x"]).await;
    let left = leaks
        .settle(&server, "shop:", 20 * BRIEF)
        .await
        .unwrap_err();
    assert!(left.contains("queue:{shop:1}"), "{left}");
    let leaks = Leaks::baseline(&server).await;
    leaks.check(&server, "other:").await;
}

#[tokio::test]
async fn a_planted_subscription_and_its_connection_are_found() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    let mut pubsub = server.client().get_async_pubsub().await.unwrap();
    pubsub.subscribe("planted").await.unwrap();
    let left = leaks.settle(&server, "", 20 * BRIEF).await.unwrap_err();
    assert!(left.contains("channels [\"planted\"]"), "{left}");
    assert!(left.contains("cmd=subscribe"), "{left}");
    drop(pubsub);
    Leaks::baseline(&server).await.check(&server, "").await;
}

#[tokio::test]
async fn a_planted_connection_is_found() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    // Without a task of its own, which would give it away as well.
    let _planted = TcpStream::connect(server.addr()).unwrap();
    let left = leaks.settle(&server, "", 20 * BRIEF).await.unwrap_err();
    assert!(left.contains("connections [\"id="), "{left}");
}

#[tokio::test]
async fn a_planted_task_is_found() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    let task = tokio::spawn(std::future::pending::<()>());
    let left = leaks.settle(&server, "", 20 * BRIEF).await.unwrap_err();
    assert!(left.contains("1 tasks"), "{left}");
    task.abort();
}

#[tokio::test]
async fn clean_up_in_the_background_is_waited_for() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    let _task = tokio::spawn(sleep(BRIEF));
    let took = leaks.settle(&server, "", SOON).await.unwrap();
    assert!(took >= BRIEF / 2, "{took:?}");
}

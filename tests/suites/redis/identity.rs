//! A client that takes another identity, or cannot.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use distlock::{Client, Error, Health};
use distlock_tests::{RedisServer, eventually};
use futures_util::future::poll_immediate;
use tokio::{runtime, time};

use super::SOON;

/// Waits for a lock that is held and for a latch, before and after the client has given up its identity and cannot be made again.
async fn wait_under_a_lost_identity(url: String) -> Vec<Result<(), Error>> {
    let client = Client::connect(&url).await.unwrap();
    let (lock, latch) = (client.lock("k"), client.count_down_latch("latch"));
    let mut until_free = Box::pin(lock.until_free().into_future());
    let mut until_zero = Box::pin(latch.wait().into_future());
    assert!(poll_immediate(&mut until_free).await.is_none());
    assert!(poll_immediate(&mut until_zero).await.is_none());
    // No client is made while the time is paused.
    time::pause();
    let renewed = client.renew_identity();
    assert!(matches!(renewed, Err(Error::TimePaused { .. })));
    vec![
        until_free.await,
        until_zero.await,
        lock.until_free().await,
        latch.wait().await,
    ]
}

#[tokio::test]
async fn waits_of_a_client_that_cannot_be_made_again_end_as_those_of_a_closed_one() {
    let server = RedisServer::start().await;
    let holder = Client::connect(&server.url()).await.unwrap();
    let _held = holder.lock("k").acquire().await.unwrap();
    let latch = holder.count_down_latch("latch");
    assert!(latch.try_set_count(1).await.unwrap());
    let (ended, waits) = mpsc::channel();
    let url = server.url();
    // A thread of its own: a wait that never returns to its runtime would keep this test from its deadline.
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let _gone = ended.send(runtime.unwrap().block_on(wait_under_a_lost_identity(url)));
    });
    let waits = tokio::task::spawn_blocking(move || waits.recv_timeout(SOON));
    let waits = waits.await.unwrap().unwrap();
    assert_eq!(waits.len(), 4);
    for ended in waits {
        assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    }
}

/// A client that has given up its identity at a moment at which it could not be made again. The time is paused.
async fn given_up(server: &RedisServer) -> Client {
    let client = Client::connect(&server.url()).await.unwrap();
    // No client is made while the time is paused.
    time::pause();
    let renewed = client.renew_identity();
    assert!(matches!(renewed, Err(Error::TimePaused { .. })));
    assert!(client.is_closed());
    client
}

#[tokio::test]
async fn client_that_could_not_be_made_again_at_first_works_once_it_is_made() {
    let server = RedisServer::start().await;
    for is_renewed in [false, true] {
        let client = given_up(&server).await;
        time::resume();
        if is_renewed {
            client.renew_identity().unwrap();
        }
        let guard = client.lock("k").acquire().await.unwrap();
        assert!(!client.is_closed());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn client_that_is_closed_while_it_cannot_be_made_again_stays_closed() {
    let server = RedisServer::start().await;
    for is_renewed in [false, true] {
        let client = given_up(&server).await;
        client.close(Duration::ZERO).await.unwrap();
        time::resume();
        if is_renewed {
            client.renew_identity().unwrap();
        }
        let acquired = client.lock("k").acquire().await;
        assert!(
            matches!(acquired, Err(Error::Closed { .. })),
            "{acquired:?}"
        );
        assert!(client.is_closed());
    }
}

#[tokio::test]
async fn client_with_another_identity_is_connected_again_though_it_only_tells_its_health() {
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    client.renew_identity().unwrap();
    eventually(SOON, "a connection", || async {
        match client.health() {
            Health::Connected => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

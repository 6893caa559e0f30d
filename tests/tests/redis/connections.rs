//! Connections that fail under a client, and what its locks make of it.

use std::time::Duration;

use distlock::Client;
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which, eventually_eq};
use tokio::time::timeout;

use super::{SOON, client, listened, ms};

async fn behind(proxy: &Proxy) -> Client {
    let builder = Client::builder().response_timeout(ms(300));
    builder
        .connect(&proxy.url())
        .await
        .expect("a client behind the proxy")
}

#[tokio::test]
async fn waiter_whose_subscription_connection_dies_is_woken_by_the_release() {
    let server = RedisServer::start().await;
    let (holder, waiter) = (client(&server).await, client(&server).await);
    for _ in 0..5 {
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("k").acquire().into_future());
        listened(&server, "k", 1).await;
        assert_eq!(server.kill_clients("pubsub").await, 1);
        listened(&server, "k", 1).await;
        guard.release().await.unwrap();
        timeout(SOON, waiting)
            .await
            .expect("woken")
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn release_while_the_subscription_is_away_is_found_when_it_is_back() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (holder, waiter) = (client(&server).await, behind(&proxy).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").acquire().into_future());
    listened(&server, "k", 1).await;
    let refused = proxy.refuse();
    assert_eq!(proxy.cut(Select::SUBSCRIBERS), 1);
    eventually_eq(SOON, "listeners", 0, || {
        server.pubsub_numsub("redisson_lock__channel:{k}")
    })
    .await;
    guard.release().await.unwrap();
    refused.lift();
    drop(
        timeout(SOON, waiting)
            .await
            .expect("asked again by itself")
            .unwrap()
            .unwrap(),
    );
}

#[tokio::test]
async fn lost_reply_of_an_attempt_costs_others_no_lease() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (unlucky, other) = (behind(&proxy).await, client(&server).await);
    unlucky
        .lock("warm:up")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let failed = unlucky.lock("k").acquire().wait(Duration::ZERO).await;
    assert!(failed.unwrap_err().is_unavailable());
    assert_eq!(fault.hits(), 1);
    // The lease is 30 s: only a release of the unknown hold frees it in time.
    drop(other.lock("k").acquire().wait(SOON).await.unwrap());
}

#[tokio::test]
async fn lost_reply_of_a_waiting_attempt_is_made_good_by_the_same_owner() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = behind(&proxy).await;
    client
        .lock("warm:up")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    assert_eq!(fault.hits(), 1);
    assert_eq!(
        server
            .hgetall("k")
            .await
            .get(&guard.owner().to_string())
            .map(String::as_str),
        Some("1")
    );
    guard.release().await.unwrap();
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn lost_reply_of_a_release_is_no_error() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = behind(&proxy).await;
    client
        .lock("warm:up")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let fault = proxy.eat_reply(Select::COMMANDS, Which::from(1));
    guard.release().await.unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn black_holed_connection_is_replaced() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = behind(&proxy).await;
    client
        .lock("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let stall = proxy.flow(Select::EXISTING, Way::Both, Flow::Stall);
    client
        .lock("k")
        .acquire()
        .wait(SOON)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(stall.hits() > 0);
    assert!(proxy.accepted() >= 2);
}

#[tokio::test]
async fn hold_is_lost_by_the_clock_when_nobody_answers() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = Client::builder()
        .watchdog_timeout(ms(900))
        .connect(&proxy.url())
        .await
        .unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let stall = proxy.flow(Select::ALL, Way::Both, Flow::Stall);
    timeout(SOON, guard.lost()).await.expect("told");
    assert!(!guard.is_held() && stall.hits() > 0);
    let error = guard.scope(async {}).await.unwrap_err();
    assert!(error.is_lost());
    stall.lift();
    assert!(guard.release().await.unwrap_err().is_lost());
    eventually_eq(SOON, "the key to go", true, || async {
        server.keys().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn client_outlives_a_restart_and_its_hold_does_not_when_the_data_is_gone() {
    let mut server = RedisServer::start().await;
    let client = Client::builder()
        .watchdog_timeout(ms(3_000))
        .connect(&server.url())
        .await
        .unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    server.kill();
    server.restart().await;
    timeout(SOON, guard.lost()).await.expect("told");
    let again = client.lock("k").acquire().wait(SOON).await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(again.is_held());
    again.release().await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_not_busy() {
    let mut server = RedisServer::start().await;
    let client = client(&server).await;
    server.kill();
    let error = client.lock("k").acquire().wait(ms(300)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let url = server.url();
    let refused = Client::connect(&url);
    assert!(
        timeout(SOON, refused)
            .await
            .expect("an answer")
            .unwrap_err()
            .is_unavailable()
    );
}

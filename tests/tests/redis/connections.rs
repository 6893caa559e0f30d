//! Connections that fail under a client, and what its locks make of it.

use std::time::Duration;

use distlock::Client;
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which, eventually_eq};
use futures_util::future::join_all;
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

#[tokio::test]
async fn hold_that_the_server_refuses_to_renew_takes_no_other_with_it() {
    let server = RedisServer::start().await;
    let rights = ["on", ">p", "~*", "&*", "+@all"];
    let grant = async |rights: &[&str]| {
        let words = [&["ACL", "SETUSER", "shop"], rights].concat();
        server.cli(&words).await;
    };
    grant(&rights).await;
    let url = format!("redis://shop:p@127.0.0.1:{}", server.port());
    let builder = Client::builder().watchdog_timeout(ms(1_500));
    let client = builder.connect(&url).await.unwrap();
    // All at once, so that they are renewed in one batch.
    let keys = (0..80).map(|n| {
        if n == 40 {
            "stock:1".into()
        } else {
            format!("order:{n}")
        }
    });
    let acquired = keys.map(|key| client.lock(key).acquire().into_future());
    let guards = join_all(acquired).await;
    let guards = guards.into_iter().map(Result::unwrap);
    let (stock, orders): (Vec<_>, Vec<_>) = guards.partition(|guard| guard.key() == "stock:1");
    grant(&["resetkeys", "~order:*"]).await;
    timeout(SOON, stock[0].lost()).await.expect("told");
    tokio::time::sleep(ms(300)).await;
    // Granted with it, they would be lost by now as well, had they not been renewed without it.
    let held = orders.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, orders.len());
}

/// Everything of a client that lives in tasks goes with their runtime: connections, watchdog, subscriptions.
#[test]
fn client_goes_on_in_another_runtime_when_its_first_has_gone() {
    let build = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, second) = (build(), build());
    let server = second.block_on(RedisServer::start());
    let lease = ms(1_500);
    let builder = Client::builder().watchdog_timeout(lease);
    let client = first.block_on(builder.connect(&server.url())).unwrap();
    let warm = first.block_on(client.lock("warm:up").acquire().into_future());
    drop(warm.unwrap());
    let (guard, waiting) = second.block_on(async {
        let other = super::client(&server).await;
        let held = other.lock("taken").acquire().await.unwrap();
        let guard = client.lock("kept").acquire().await.unwrap();
        let waiter = tokio::spawn(client.lock("taken").acquire().into_future());
        listened(&server, "taken", 1).await;
        (guard, (held, waiter))
    });
    drop(first);
    second.block_on(async {
        // No call of the client in between: the watchdog has to come over by itself.
        tokio::time::sleep(2 * lease).await;
        assert!(guard.is_held(), "nobody renewed it");
        let (held, waiter) = waiting;
        held.release().await.unwrap();
        drop(
            timeout(SOON, waiter)
                .await
                .expect("woken")
                .unwrap()
                .unwrap(),
        );
        assert!(
            client.lock("kept").is_locked().await.unwrap(),
            "the first command of all"
        );
        guard.release().await.unwrap();
    });
}

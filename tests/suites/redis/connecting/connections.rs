//! Connections that fail under a client, and what its locks make of it.

use distlock::Client;
use distlock::test_util::connections;
use distlock_tests::{BY_MESSAGE, Proxy, RedisServer, Select, eventually_eq, size};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::redis::{SOON, client, listened, ms};

#[tokio::test]
async fn release_while_the_subscription_is_away_is_found_when_it_is_back() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let (holder, waiter) = (client(&server).await, Client::connect(&proxy.url()).await);
    let waiter = waiter.expect("a client behind the proxy");
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
async fn client_outlives_a_restart_and_its_hold_does_not_when_the_data_is_gone() {
    let mut server = RedisServer::start().await;
    let client = client(&server).await;
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

/// Everything of a client that lives in tasks goes with their runtime: connections, watchdog, subscriptions.
#[test]
fn client_goes_on_in_another_runtime_when_its_first_has_gone() {
    let build = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, second) = (build(), build());
    let server = second.block_on(RedisServer::start());
    // A machine that stands still for some seconds ends no hold.
    let lease = ms(6_000);
    let builder = Client::builder().watchdog_timeout(lease);
    let client = first.block_on(builder.connect(&server.url())).unwrap();
    let warm = first.block_on(client.lock("warm:up").acquire().into_future());
    drop(warm.unwrap());
    let (guard, waiting) = second.block_on(async {
        let other = crate::redis::client(&server).await;
        let held = other.lock("taken").acquire().await.unwrap();
        let guard = client.lock("kept").acquire().await.unwrap();
        let waiter = tokio::spawn(client.lock("taken").acquire().into_future());
        listened(&server, "taken", 1).await;
        (guard, (held, waiter))
    });
    drop(first);
    second.block_on(async {
        // No call of the client in between: the watchdog has to find the new connection.
        tokio::time::sleep(lease * 4 / 3).await;
        assert!(guard.is_held(), "nobody renewed it");
        let (held, waiter) = waiting;
        held.release().await.unwrap();
        drop(
            timeout(BY_MESSAGE, waiter)
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

/// A caller that finds no connection starts the task that connects, unless it runs. Many callers find none at the same time, and
/// some of them look just before a connection stands and ask for one just after.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_that_end_again_and_again_under_many_tasks_are_used_under_their_own_numbers() {
    const TASKS: usize = 64;
    let server = RedisServer::start().await;
    let client = Client::connect(&server.url()).await.expect("a client");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            let key = format!("k:{task}");
            loop {
                // With a connection that ends every now and then, any of them may fail.
                if let Ok(Some(guard)) = client.lock(&key).try_acquire().await {
                    let _freed = guard.release().await;
                }
            }
        });
    }
    let (mut replaced, mut last, mut pace) = (0, 0, ms(60));
    let enough = size(8, 600);
    for kill in 0.. {
        let kill_all = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        let killed: u64 = server.try_cli(&kill_all).await.expect("the number");
        // The pace of the kills, and not a wait for anything. A slow machine may need longer for a new connection.
        sleep(pace).await;
        let before = replaced;
        for seen in connections(&client) {
            let agrees = seen.in_use.is_none_or(|in_use| in_use == seen.epoch);
            assert!(
                agrees,
                "after {kill} kills, {replaced} connections: {seen:?}"
            );
            if killed > 0 && seen.name.starts_with("commands") && seen.epoch != last {
                (replaced, last) = (replaced + 1, seen.epoch);
            }
        }
        pace = if replaced > before {
            ms(60)
        } else {
            (2 * pace).min(ms(2_000))
        };
        assert!(kill < 10 * enough, "only {replaced} connections");
        if replaced >= enough {
            break;
        }
    }
    tasks.shutdown().await;
    // It asks for each page over the connection of the page before.
    let mut scan = client.scan("*");
    let scanned = async { while scan.next_page().await.expect("a page").is_some() {} };
    timeout(SOON, scanned).await.expect("an end of the scan");
}

//! Rows 27, 28, 30, 31 and 39: subscriptions whose connection dies, and subscriptions that come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Builder, Client, Error, Guard};
use distlock_tests::proxy::Role;
use distlock_tests::{
    BY_MESSAGE, Flow, Proxy, RedisServer, Select, Way, eventually, eventually_eq, size,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use rand::RngExt;
use rand::seq::SliceRandom;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::support::{
    SOON, client, client_with, default_client, free, listened, ms, server_and_proxy, waiting,
    warm_up,
};

type Waiting = JoinHandle<Result<Guard, Error>>;

fn wait_for(client: &Client, key: &str) -> Waiting {
    tokio::spawn(client.lock(key).acquire().into_future())
}

/// Completes when the server has this many channels with listeners.
async fn channels(server: &RedisServer, expected: usize) {
    eventually_eq(2 * SOON, "channels", expected, || async {
        server.pubsub_channels().await.len()
    })
    .await;
}

/// Frees all keys at once; all waiters get in soon.
async fn all_get_in(row: &Row, foreign: &mut Foreign, keys: &[String], waiting: Vec<Waiting>) {
    let heard = foreign.free(keys).await;
    assert!(heard.iter().all(|heard| *heard == 1), "not all listened");
    let in_time = row.timeout(BY_MESSAGE, join_all(waiting)).await;
    for guard in in_time.expect("all were told") {
        drop(guard.unwrap().unwrap());
    }
}

async fn f27_waiters_whose_subscriptions_are_killed_again_and_again_all_get_in(row: &Row) {
    let server = RedisServer::start().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&server.url()).await);
    }
    let (keys, mut foreign) = (names("k", 100), Foreign::on(&server).await);
    foreign.hold(&keys).await;
    let mut granted = JoinSet::new();
    for (n, key) in keys.iter().enumerate() {
        let acquire = clients[n % clients.len()].lock(key).acquire();
        granted.spawn(async move { (acquire.await.unwrap(), n, Instant::now()) });
    }
    channels(&server, keys.len()).await;
    let mut freed = Vec::new();
    for key in keys.chunks(1) {
        for _ in 0..2 {
            let killed = eventually(SOON, "a subscription to kill", || async {
                let killed = server.kill_clients("pubsub").await;
                (killed > 0).then_some(killed)
            });
            row.injected("subscription killed", killed.await);
        }
        foreign.free(key).await;
        freed.push(Instant::now());
    }
    let mut worst = Duration::ZERO;
    while let Some(granted) = granted.join_next().await {
        let (_guard, n, at) = granted.unwrap();
        worst = worst.max(at.saturating_duration_since(freed[n]));
    }
    println!("from the release to the grant: {worst:?} at most");
    assert!(worst < BY_MESSAGE, "{worst:?}");
    free(&server, &clients.iter().collect::<Vec<_>>()).await;
}

/// The pauses between tries to connect have grown to 2 s by then, and those of the connection for commands are shorter.
async fn f27_subscriptions_are_back_as_soon_as_the_connection_for_commands(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let short = |builder: Builder| {
        builder
            .response_timeout(ms(300))
            .watchdog_timeout(ms(3_000))
    };
    let client = client_with(&proxy.url(), short).await;
    let holder = default_client(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire().wait(20 * SOON).into_future());
    for _ in 0..3 {
        listened(&server, "k", 1).await;
        let refused = proxy.refuse();
        assert!(proxy.cut(Select::ALL) > 0);
        listened(&server, "k", 0).await;
        // The length of the outage is the fault.
        sleep(ms(4_000)).await;
        row.injected("connection refused", refused.hits());
        refused.lift();
        let is_back = || async { client.is_connected() };
        eventually_eq(SOON, "the connection for commands", true, is_back).await;
        let subscribed = row.timeout(ms(1_000), listened(&server, "k", 1)).await;
        subscribed.expect("subscribed again");
    }
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

async fn f28_silent_subscription_is_replaced_and_its_waiter_gets_in(row: &Row) {
    /// The subscription's PING.
    const INTERVAL: Duration = Duration::from_secs(5);
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let waiter = client(&proxy.url()).await;
    let (keys, mut foreign) = (names("k", 2), Foreign::on(&server).await);
    foreign.hold(&keys).await;
    let (first, second) = (wait_for(&waiter, &keys[0]), wait_for(&waiter, &keys[1]));
    channels(&server, keys.len()).await;
    let stall = proxy.flow(Select::SUBSCRIBERS.existing(), Way::Both, Flow::Stall);
    let (stalled, before) = (Instant::now(), proxy.accepted());
    foreign.free(&keys[..1]).await;
    // By its look at the key, or by the new subscription: the lease has another ten minutes.
    let guard = row.timeout(3 * INTERVAL, first).await.expect("woken");
    row.injected("message stalled", stall.hits());
    guard.unwrap().unwrap().release().await.unwrap();
    let replaced = row.stretch(3 * INTERVAL) + SOON;
    eventually_eq(replaced, "connections", before + 1, || async {
        proxy.accepted()
    })
    .await;
    println!("replaced after {:?}", stalled.elapsed());
    // The silent one as well: to the server it is still there.
    listened(&server, &keys[1], 2).await;
    foreign.free(&keys[1..]).await;
    let guard = row.timeout(BY_MESSAGE, second).await.expect("told");
    guard.unwrap().unwrap().release().await.unwrap();
}

async fn f30_waiters_that_give_up_leave_no_subscription(row: &Row) {
    let server = RedisServer::start().await;
    let waiter = client(&server.url()).await;
    let (keys, mut foreign) = (names("k", size(400, 1_000)), Foreign::on(&server).await);
    foreign.hold(&keys).await;
    let mut random = rand::rng();
    let mut waits = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        let acquire = waiter.lock(key).acquire();
        let acquire = match n % 3 {
            0 => acquire.wait(ms(random.random_range(1..400))),
            _ => acquire,
        };
        waits.push(tokio::spawn(acquire.into_future()));
    }
    let mut order: Vec<usize> = (0..keys.len()).filter(|n| n % 3 != 0).collect();
    order.shuffle(&mut random);
    for n in order {
        sleep(Duration::from_micros(random.random_range(0..600))).await;
        match n % 3 {
            1 => waits[n].abort(),
            _ => drop(foreign.free(&keys[n..=n]).await),
        }
    }
    let [mut aborted, mut timed_out, mut granted] = [0; 3];
    for waits in waits {
        match timeout(SOON, waits).await.expect("an end") {
            Err(_) => aborted += 1,
            Ok(Err(error)) => timed_out += u64::from(!error.is_permanent()),
            Ok(Ok(_guard)) => granted += 1,
        }
    }
    assert_eq!(aborted + timed_out + granted, keys.len() as u64);
    row.injected("waiter aborted", aborted);
    row.injected("waiter timed out", timed_out);
    let gone = Instant::now();
    foreign.free(&keys).await;
    free(&server, &[&waiter]).await;
    println!(
        "{granted} granted; no channel left after {:?}",
        gone.elapsed()
    );
    foreign.hold(&keys).await;
    let again: Vec<Waiting> = keys.iter().map(|key| wait_for(&waiter, key)).collect();
    channels(&server, keys.len()).await;
    all_get_in(row, &mut foreign, &keys, again).await;
}

async fn f31_waiter_that_comes_while_the_unsubscription_is_under_way_is_told(row: &Row) {
    /// A channel without waiters is left after this.
    const LINGER: u64 = 250;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    // With the default timeouts: a connection that is replaced takes its channels with it, and none is left.
    let waiter = client_with(&proxy.url(), |builder| builder).await;
    warm_up(&waiter).await;
    let (keys, mut foreign) = (names("k", 300), Foreign::on(&server).await);
    foreign.hold(&keys).await;
    let delay = proxy.flow(Select::SUBSCRIBERS, Way::Both, Flow::Delay(ms(15)));
    let seen = AtomicBool::new(false);
    let come_and_go = async |key: &String| {
        let mut round = 0;
        while round < 6 || !seen.load(Ordering::Relaxed) {
            round += 1;
            let (stay, away) = {
                let mut random = rand::rng();
                // Longer and longer, for a busy machine leaves late.
                (
                    random.random_range(1..80),
                    random.random_range(0..20 * round),
                )
            };
            let gone = waiter.lock(key).acquire().wait(ms(stay)).await;
            assert!(!gone.unwrap_err().is_permanent());
            sleep(ms(LINGER + away)).await;
        }
    };
    let last = keys
        .iter()
        .map(|key| come_and_go(key).map(|()| wait_for(&waiter, key)));
    let left = async {
        eventually(6 * SOON, "12 unsubscriptions", || async {
            server.command_calls("unsubscribe").await >= 12
        })
        .await;
        seen.store(true, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(join_all(last), left);
    row.injected("message delayed", delay.hits());
    row.injected("unsubscription", server.command_calls("unsubscribe").await);
    waiting(&waiter, keys.len()).await;
    channels(&server, keys.len()).await;
    all_get_in(row, &mut foreign, &keys, last).await;
    delay.lift();
    free(&server, &[&waiter]).await;
}

/// Each cut has every waiter ask twice.
async fn f39_resubscription_that_is_cut_again_and_again_is_complete_in_the_end(row: &Row) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    // After each cut thousands ask at once, which takes a busy machine long.
    let patient = |builder: Builder| builder.unavailable_after(Duration::from_secs(60));
    let waiter = client_with(&proxy.url(), patient).await;
    warm_up(&waiter).await;
    let (keys, mut foreign) = (names("k", size(500, 2_000)), Foreign::on(&server).await);
    foreign.hold(&keys).await;
    let waits: Vec<Waiting> = keys.iter().map(|key| wait_for(&waiter, key)).collect();
    channels(&server, keys.len()).await;
    for _ in 0..size(12, 50) {
        eventually(SOON, "a subscriber", || async {
            let open = proxy.connections();
            open.iter().any(|open| open.role == Role::Subscriber)
        })
        .await;
        // Four commands of some ten bytes for each key, cut anywhere in them.
        let after = rand::rng().random_range(1..30 * keys.len());
        let cut = proxy.cut_after(Select::SUBSCRIBERS.new_only(), Way::Up, after);
        assert_eq!(proxy.cut(Select::SUBSCRIBERS), 1);
        cut.reach(1, SOON).await;
        row.injected("resubscription cut", cut.hits());
    }
    channels(&server, keys.len()).await;
    waiting(&waiter, keys.len()).await;
    all_get_in(row, &mut foreign, &keys, waits).await;
}

rows! {
    Real: f27_waiters_whose_subscriptions_are_killed_again_and_again_all_get_in,
        f27_subscriptions_are_back_as_soon_as_the_connection_for_commands,
        f28_silent_subscription_is_replaced_and_its_waiter_gets_in,
        f30_waiters_that_give_up_leave_no_subscription,
        f31_waiter_that_comes_while_the_unsubscription_is_under_way_is_told,
        f39_resubscription_that_is_cut_again_and_again_is_complete_in_the_end;
}

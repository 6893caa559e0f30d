//! Rows 26, 32, 33 and 40: messages that come too early, are too many, mean nothing, or are not meant for anybody here.

use std::time::Duration;

use distlock::{Client, Guard};
use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, Which, eventually, eventually_eq};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::support::{SOON, client, client_with, idle, listened, ms, warm_up};

/// Below the 5 s after which a waiter without messages asks again.
const TOLD: Duration = Duration::from_secs(3);

fn waits(client: &Client, key: &str) -> JoinHandle<Guard> {
    let acquire = client.lock(key).acquire();
    tokio::spawn(async move { acquire.await.unwrap() })
}

/// How many attempts the server has carried out, of which several may come in one call.
async fn attempts(server: &RedisServer) -> u64 {
    server.command_calls("exists").await
}

async fn f26_release_that_comes_before_the_subscription_is_not_missed(row: &Row) {
    const KEYS: usize = 100;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    // With the default timeouts: the subscription is kept back for longer than 300 ms on a busy machine.
    let waiter = client_with(&proxy.url(), |builder| builder).await;
    warm_up(&waiter).await;
    let mut foreign = Foreign::on(&server).await;
    let mut worst = Duration::ZERO;
    for round in 0..10 {
        let keys = names(round, KEYS);
        foreign.hold(&keys).await;
        let asked = attempts(&server).await + KEYS as u64;
        let which = Which::NEXT.containing(format!("{{{round}:"));
        let trap = proxy.hold(Select::SUBSCRIBERS, which);
        let waiting: Vec<_> = keys.iter().map(|key| waits(&waiter, key)).collect();
        let subscription = trap.caught(SOON).await;
        eventually(SOON, "refused attempts", || async {
            attempts(&server).await >= asked
        })
        .await;
        let heard = foreign.free(&keys).await;
        assert!(heard.iter().all(|heard| *heard == 0), "{heard:?}");
        let delivered = Instant::now();
        subscription.deliver().await;
        for waiting in waiting {
            let guard = row.timeout(TOLD, waiting).await.expect("asked again");
            worst = worst.max(delivered.elapsed());
            drop(guard.unwrap());
        }
        row.injected("release that nobody heard", KEYS as u64);
        idle(&waiter).await;
    }
    println!("from the subscription to the grant: {worst:?} at most");
}

async fn f32_subscriber_that_overflows_is_replaced_and_its_waiter_gets_in(row: &Row) {
    let limit = "--client-output-buffer-limit";
    let builder = RedisServer::builder().arg(limit, "pubsub 1kb 0 0");
    let server = builder.start().await;
    let proxy = Proxy::start(server.addr()).await;
    let waiter = client(&proxy.url()).await;
    let mut foreign = Foreign::on(&server).await;
    let key = [String::from("k")];
    foreign.hold(&key).await;
    let waiting = waits(&waiter, "k");
    listened(&server, "k", 1).await;
    let slow = proxy.flow(
        Select::SUBSCRIBERS.existing(),
        Way::Down,
        Flow::Throttle(1_000),
    );
    let payload = vec![b'x'; 1_000];
    let mut published = 0;
    while foreign.say(&["k"], &payload).await == 1 {
        published += 1;
        assert!(published < 20_000, "the server closed no subscriber");
    }
    assert!(slow.hits() > 0);
    row.injected("subscriber closed by the server", 1);
    listened(&server, "k", 1).await;
    foreign.free(&key).await;
    let guard = row.timeout(TOLD, waiting).await.expect("woken").unwrap();
    guard.release().await.unwrap();
}

async fn f33_messages_of_no_meaning_wake_nobody_and_harm_nobody(row: &Row) {
    let server = RedisServer::start().await;
    let waiter = client(&server.url()).await;
    warm_up(&waiter).await;
    let mut foreign = Foreign::on(&server).await;
    let key = [String::from("k")];
    foreign.hold(&key).await;
    let before = attempts(&server).await;
    let waiting = waits(&waiter, "k");
    // One before the subscription, and one after.
    eventually_eq(SOON, "attempts", before + 2, || attempts(&server)).await;
    let (long, deep) = (vec![b'0'; 1 << 20], b"0\0".repeat(1_000));
    let odd: [&[u8]; 21] = [
        b"",
        b"2",
        b"-1",
        b"00",
        b"01",
        b"0 ",
        b" 0",
        b"0\n",
        b"\0",
        b"+0",
        b"1e0",
        b"18446744073709551616",
        b"zero",
        b"null",
        "\u{0660}".as_bytes(),
        "\u{fffd}".as_bytes(),
        b"\xff\xfe",
        b"0\xc3\x28",
        b"*1\r\n$1\r\n0\r\n",
        &deep,
        &long,
    ];
    for payload in odd {
        row.injected("odd message", foreign.say(&["k"], payload).await);
    }
    assert_eq!(foreign.free(&key).await, [1], "the listener was lost");
    let guard = row.timeout(TOLD, waiting).await.expect("woken").unwrap();
    // In their order, so all of them had been heard when the last one was.
    assert_eq!(attempts(&server).await, before + 3, "one was acted on");
    guard.release().await.unwrap();
}

async fn f40_spurious_messages_cost_an_attempt_each_at_most_and_let_nobody_in(row: &Row) {
    let server = RedisServer::start().await;
    let waiter = client(&server.url()).await;
    warm_up(&waiter).await;
    let mut foreign = Foreign::on(&server).await;
    // Channels know no database.
    foreign.send(&["SELECT", "0"]).await;
    let key = [String::from("k")];
    foreign.hold(&key).await;
    let waiting = waits(&waiter, "k");
    listened(&server, "k", 1).await;
    foreign.send(&["SELECT", "3"]).await;
    let before = attempts(&server).await;
    let (mut pace, mut heard) = (interval(ms(4)), 0);
    for _ in 0..1_250 {
        pace.tick().await;
        heard += foreign.say(&["k"; 4], b"0").await;
    }
    let (asked, most) = (attempts(&server).await - before, heard + 1);
    println!("{heard} spurious messages, {asked} attempts");
    assert!(asked <= most && !waiting.is_finished(), "{asked} attempts");
    // Nothing is left over that goes on asking.
    let quiet = attempts(&server).await;
    tokio::time::sleep(ms(500)).await;
    assert!(attempts(&server).await - quiet <= 1);
    row.injected("spurious message", heard);
    foreign.send(&["SELECT", "0"]).await;
    foreign.free(&key).await;
    let guard = row.timeout(TOLD, waiting).await.expect("woken").unwrap();
    guard.release().await.unwrap();
}

rows! {
    Real: f26_release_that_comes_before_the_subscription_is_not_missed,
        f32_subscriber_that_overflows_is_replaced_and_its_waiter_gets_in,
        f33_messages_of_no_meaning_wake_nobody_and_harm_nobody,
        f40_spurious_messages_cost_an_attempt_each_at_most_and_let_nobody_in;
}

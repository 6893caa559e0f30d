//! Flows: how bytes move until the test says otherwise.

use std::time::Instant;

use distlock_tests::{Flow, Proxy, Pulse, RedisServer, Select, Way, eventually_eq};
use redis::{AsyncTypedCommands, Client};
use tokio::time::timeout;

use super::super::{BRIEF, SOON};
use super::{connect, pair, soon, try_connect};

#[tokio::test]
async fn stalled_requests_arrive_when_the_stall_is_lifted() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let stall = proxy.flow(Select::EXISTING, Way::Up, Flow::Stall);
    let mut write = Box::pin(client.set("key", 1));
    assert!(timeout(BRIEF, &mut write).await.is_err());
    stall.reach(1, SOON).await;
    assert_eq!((server.keys().await.len(), stall.hits()), (0, 1));
    assert_eq!(connect(&proxy).await.ping().await.unwrap(), "PONG");
    stall.lift();
    soon(write).await.unwrap();
    assert_eq!(server.keys().await, ["key"]);
}

#[tokio::test]
async fn stalled_replies_hide_what_was_executed() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let stall = proxy.flow(Select::ALL, Way::Down, Flow::Stall);
    assert!(timeout(BRIEF, client.set("key", 1)).await.is_err());
    stall.reach(1, SOON).await;
    assert_eq!((server.keys().await.len(), stall.hits()), (1, 1));
    // The end of a stalled client waits like everything else; `heal` lets it through.
    drop(client);
    proxy.heal();
    eventually_eq(SOON, "open connections", 0, || async {
        proxy.connections().len()
    })
    .await;
}

#[tokio::test]
async fn only_the_subscriber_is_stalled() {
    let (server, proxy) = pair().await;
    let mut commands = connect(&proxy).await;
    let client = Client::open(proxy.url()).unwrap();
    let (mut sink, mut stream) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe("channel").await.unwrap();
    commands.ping().await.unwrap();
    let stall = proxy.flow(Select::SUBSCRIBERS.existing(), Way::Down, Flow::Stall);
    assert_eq!(commands.publish("channel", "0").await.unwrap(), 1);
    stall.reach(1, SOON).await;
    assert!(timeout(BRIEF, next(&mut stream)).await.is_err());
    // A new subscriber is not concerned.
    let (mut sink, mut other) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe("channel").await.unwrap();
    server.cli(&["PUBLISH", "channel", "1"]).await;
    assert_eq!(soon(next(&mut other)).await, "1");
    stall.lift();
    assert_eq!(soon(next(&mut stream)).await, "0");
}

async fn next(stream: &mut redis::aio::PubSubStream) -> String {
    use futures_util::StreamExt;
    stream
        .next()
        .await
        .expect("a message")
        .get_payload()
        .unwrap()
}

#[tokio::test]
async fn a_stall_of_subscribers_starts_with_the_subscription() {
    let (server, proxy) = pair().await;
    let stall = proxy.flow(Select::SUBSCRIBERS, Way::Up, Flow::Stall);
    let mut client = try_connect(&proxy, "?protocol=resp3").await.unwrap();
    client.ping().await.unwrap();
    let mut subscribe = Box::pin(client.subscribe("channel"));
    assert!(timeout(BRIEF, &mut subscribe).await.is_err());
    stall.reach(1, SOON).await;
    assert_eq!(
        (server.pubsub_numsub("channel").await, stall.hits()),
        (0, 1)
    );
    stall.lift();
    soon(subscribe).await.unwrap();
}

#[tokio::test]
async fn delay_shifts_but_does_not_add_up() {
    let pulse = Pulse::start();
    let (_server, proxy) = pair().await;
    let client = connect(&proxy).await;
    let delay = proxy.flow(Select::ALL, Way::Both, Flow::Delay(BRIEF));
    let start = Instant::now();
    let asks = (0..20).map(|_| {
        let mut client = client.clone();
        async move { client.ping().await.unwrap() }
    });
    futures_util::future::join_all(asks).await;
    let took = start.elapsed();
    let most = pulse.stretch(6 * BRIEF);
    assert!((2 * BRIEF..most).contains(&took), "{took:?}");
    assert_eq!(delay.hits(), 40);
}

#[tokio::test]
async fn throttle_takes_the_time_it_says() {
    let pulse = Pulse::start();
    let (_server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    client.set("key", "x".repeat(10_000)).await.unwrap();
    let throttle = proxy.flow(Select::ALL, Way::Down, Flow::Throttle(50_000));
    let start = Instant::now();
    client.get("key").await.unwrap();
    let took = start.elapsed();
    let most = pulse.stretch(10 * BRIEF);
    assert!((BRIEF * 9 / 5..most).contains(&took), "{took:?}");
    assert_eq!(throttle.hits(), 1);
}

#[tokio::test]
async fn a_throttled_subscriber_overflows_at_the_server() {
    let limit = ("--client-output-buffer-limit", "pubsub 1kb 0 0");
    let server = RedisServer::builder().arg(limit.0, limit.1).start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = Client::open(proxy.url()).unwrap();
    let mut pubsub = client.get_async_pubsub().await.unwrap();
    pubsub.subscribe("channel").await.unwrap();
    let throttle = proxy.flow(Select::SUBSCRIBERS, Way::Down, Flow::Throttle(1_000));
    let mut publisher = server.connection().await;
    let message = "x".repeat(1_000);
    let mut published = 0;
    while publisher.publish("channel", &message).await.unwrap() == 1 {
        published += 1;
        assert!(
            published < 20_000,
            "the server never dropped its slow subscriber"
        );
    }
    // The proxy may read its first piece after the server has given up.
    throttle.reach(1, SOON).await;
}

#[tokio::test]
async fn one_byte_segments_are_put_together_again() {
    let (_server, proxy) = pair().await;
    let mut client = try_connect(&proxy, "?protocol=resp3").await.unwrap();
    let rechunk = proxy.flow(Select::ALL, Way::Both, Flow::Rechunk(1));
    client.set("key", "value\r\n*3").await.unwrap();
    assert_eq!(client.get("key").await.unwrap().unwrap(), "value\r\n*3");
    assert_eq!(rechunk.hits(), 4);
}

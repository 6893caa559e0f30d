//! The proxy with real clients and a real server: without faults, and the faults' handles.

mod cut;
mod flow;
mod raw;
mod trap;

use std::time::{Duration, Instant};

use distlock_tests::proxy::Role;
use distlock_tests::{Flow, Leaks, Proxy, Pulse, RedisServer, Select, Way, eventually_eq};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, AsyncTypedCommands, Client, RedisError, RedisResult};
use tokio::time::timeout;

use super::{BRIEF, SOON, panics};

/// Long beside what a request through the proxy should take.
const SLOW: Duration = Duration::from_millis(20);

async fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    (server, proxy)
}

/// A client of the proxy that waits for ever, so that each test sets its own deadlines.
async fn connect(proxy: &Proxy) -> MultiplexedConnection {
    try_connect(proxy, "").await.unwrap()
}

async fn try_connect(proxy: &Proxy, options: &str) -> RedisResult<MultiplexedConnection> {
    let client = Client::open(proxy.url() + options).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("soon")
}

fn is_gone(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}

#[tokio::test]
async fn without_faults_everything_passes() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let value = "x".repeat(3_000_000);
    client.set("key", &value).await.unwrap();
    assert_eq!(client.get("key").await.unwrap(), Some(value));
    let mut pipeline = redis::pipe();
    for n in 0..5_000 {
        pipeline.incr("n", n).ignore();
    }
    pipeline.exec_async(&mut client).await.unwrap();
    assert_eq!(server.command_calls("incrby").await, 5_000);
    let connections = proxy.connections();
    assert_eq!(
        (connections.len(), connections[0].role),
        (1, Role::Commands)
    );
    assert!(connections[0].requests > 5_000);
    assert_eq!(connections[0].requests, connections[0].replies);
}

#[tokio::test]
async fn a_closed_client_closes_the_server_side() {
    let (server, proxy) = pair().await;
    let leaks = Leaks::baseline(&server).await;
    drop(connect(&proxy).await);
    leaks.check(&server, "").await;
    assert_eq!((proxy.connections().len(), proxy.accepted()), (0, 1));
}

#[tokio::test]
async fn no_task_outlives_the_proxy() {
    let server = RedisServer::start().await;
    let leaks = Leaks::baseline(&server).await;
    let proxy = Proxy::start(server.addr()).await;
    let client = connect(&proxy).await;
    let stall = proxy.flow(Select::ALL, Way::Both, Flow::Stall);
    drop((proxy, client, stall));
    leaks.check(&server, "").await;
}

#[tokio::test]
async fn a_killed_server_is_seen_by_the_client() {
    let (mut server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    server.kill();
    assert!(is_gone(&soon(client.get("key")).await.unwrap_err()));
    assert!(soon(try_connect(&proxy, "")).await.is_err());
    eventually_eq(SOON, "open connections", 0, || async {
        proxy.connections().len()
    })
    .await;
    server.restart().await;
    assert_eq!(connect(&proxy).await.ping().await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_fault_that_does_not_happen_is_noticed() {
    let (_server, proxy) = pair().await;
    let stall = proxy.flow(Select::ALL, Way::Both, Flow::Stall);
    let text = panics(async move { stall.reach(1, BRIEF).await }).await;
    assert!(text.contains("0 times within 100ms"), "{text}");
    let held = proxy.hold(Select::ALL, 1);
    let text = panics(held.caught(BRIEF)).await;
    assert!(text.contains("no request to hold"), "{text}");
    let held = proxy.hold(Select::ALL, 1);
    proxy.heal();
    let text = panics(held.caught(SOON)).await;
    assert!(text.contains("taken back"), "{text}");
}

#[tokio::test]
async fn new_connections_go_to_the_new_target() {
    let (server, proxy) = pair().await;
    let other = RedisServer::start().await;
    let mut before = connect(&proxy).await;
    proxy.set_target(other.addr());
    connect(&proxy).await.set("there", 1).await.unwrap();
    before.set("here", 1).await.unwrap();
    assert_eq!(
        (server.keys().await, other.keys().await),
        (vec!["here".into()], vec!["there".into()])
    );
}

#[tokio::test]
async fn the_proxy_itself_is_quick() {
    let pulse = Pulse::start();
    let (_server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let mut took = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        client.ping().await.unwrap();
        took.push(start.elapsed());
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    assert!(median < pulse.stretch(SLOW), "{median:?}");
    println!("{median:?} for half of the requests through the proxy");
}

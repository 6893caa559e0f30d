//! Rows 46 and 49: a server that runs a script for longer than it should, and refuses nearly everything meanwhile.

use distlock_tests::log::lines_with;

use distlock_tests::{Flow, Proxy, RedisServer, Select, Way, eventually, eventually_eq};
use redis::{RedisResult, Value};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::refusals::{Scene, errors};
use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::support::{SOON, client, client_with, listened, ms, server_and_proxy};

/// A server that is busy soon.
pub(super) async fn server() -> RedisServer {
    RedisServer::builder()
        .arg("--lua-time-limit", "10")
        .start()
        .await
}

/// A script that runs until it is killed.
pub(crate) struct Endless {
    script: JoinHandle<RedisResult<Value>>,
    killer: Foreign,
}

impl Endless {
    /// The server refuses commands when this returns.
    pub(crate) async fn at(server: &RedisServer) -> Self {
        let mut foreign = Foreign::on(server).await;
        let mut killer = Foreign::on(server).await;
        let script = tokio::spawn(async move {
            let words = ["EVAL", "while true do end", "0"];
            foreign.ask(&words).await
        });
        while killer.ask::<String>(&["PING"]).await.is_ok() {
            sleep(ms(1)).await;
        }
        Self { script, killer }
    }

    pub(crate) async fn kill(mut self) {
        self.killer.send(&["SCRIPT", "KILL"]).await;
        assert!(self.script.await.unwrap().is_err());
    }
}

async fn f49_client_of_a_database_waits_for_a_busy_server_that_it_connects_to(row: &Row) {
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await;
    let url = format!("{}/3", proxy.url());
    let scene = Scene::with(server, &url).await;
    let endless = Endless::at(&scene.server).await;
    assert_eq!(proxy.cut(Select::ALL), 2);
    scene.hears("BUSY").await;
    scene.waits_it_out("BUSY", endless.kill()).await;
    row.injected("BUSY", errors(&scene.server, "BUSY").await);
}

async fn f49_permit_that_is_dropped_while_the_server_cannot_be_used_goes_back(row: &Row) {
    let server = server().await;
    // A client of a single server refuses it.
    let unusable = RedisServer::builder().arg("--cluster-enabled", "yes");
    let unusable = unusable.start().await;
    let proxy = Proxy::start(server.addr()).await;
    let client = client(&format!("{}/3", proxy.url())).await;
    let semaphore = client.semaphore("f49:permits");
    assert!(semaphore.try_set_permits(2).await.unwrap());
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.acquire().await.unwrap();

    let endless = Endless::at(&server).await;
    assert!(proxy.cut(Select::ALL) > 0);
    let before = proxy.accepted();
    drop(first);
    eventually(SOON, "tries to connect", async || {
        proxy.accepted() >= before + 5
    })
    .await;
    endless.kill().await;
    eventually_eq(SOON, "permits", 1, async || {
        semaphore.available_permits().await.unwrap()
    })
    .await;
    row.injected("BUSY", errors(&server, "BUSY").await);

    proxy.set_target(unusable.addr());
    assert!(proxy.cut(Select::ALL) > 0);
    drop(second);
    let told = ["WARN", "f49:permits", "release refused", "database"];
    eventually(SOON, "a warning", async || lines_with(&told) > 0).await;
    proxy.set_target(server.addr());
    eventually_eq(SOON, "permits", Some(2), async || {
        semaphore.available_permits().await.ok()
    })
    .await;
    row.injected("another server", 1);
}

async fn f46_connections_for_messages_to_a_busy_server_are_not_replaced_in_a_loop(row: &Row) {
    let server = server().await;
    let mut foreign = Foreign::on(&server).await;
    let keys = names("k", 1);
    foreign.hold(&keys).await;
    let proxies = [
        Proxy::start(server.addr()).await,
        Proxy::start(server.addr()).await,
    ];
    let mut waiters = Vec::new();
    for proxy in &proxies {
        let client = client_with(&proxy.url(), |builder| builder.unavailable_after(6 * SOON)).await;
        let waiter = client.lock("k:0").acquire().wait(6 * SOON);
        waiters.push(tokio::spawn(async move { waiter.await.map(drop) }));
    }
    listened(&server, "k:0", 2).await;
    let [subscribes, pings] = &proxies;
    let before = proxies.each_ref().map(Proxy::accepted);
    let endless = Endless::at(&server).await;
    // It connects again at once, and cannot subscribe.
    assert_eq!(subscribes.cut(Select::SUBSCRIBERS), 1);
    // The time is the fault: a connection that was silent for five seconds is asked for a sign of life.
    sleep(ms(6_500)).await;
    endless.kill().await;
    let connected = |proxy: &Proxy, before| proxy.accepted() - before;
    assert!(connected(subscribes, before[0]) < 10);
    assert_eq!(connected(pings, before[1]), 0);
    listened(&server, "k:0", 2).await;
    foreign.free(&keys).await;
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    row.injected("BUSY", errors(&server, "BUSY").await);
}

/// As a proxy does that answers the handshake by itself and has no messages.
async fn f46_connections_that_end_at_each_subscription_are_not_replaced_in_a_loop(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let mut foreign = Foreign::on(&server).await;
    let keys = names("k", 1);
    foreign.hold(&keys).await;
    let client = client_with(&proxy.url(), |builder| builder.unavailable_after(6 * SOON)).await;
    // Nothing that follows a subscription arrives.
    let _unanswered = proxy.flow(Select::SUBSCRIBERS, Way::Down, Flow::Stall);
    let before = proxy.accepted();
    let waiter = client.lock("k:0").acquire().wait(6 * SOON);
    let waiter = tokio::spawn(async move { waiter.await.map(drop) });
    let mut cut = 0;
    let cutting = async {
        loop {
            cut += proxy.cut(Select::SUBSCRIBERS);
            sleep(ms(1)).await;
        }
    };
    // The time is the fault.
    let _endless = timeout(ms(4_000), cutting).await;
    let connected = proxy.accepted() - before;
    assert!(connected < 20, "{connected} connections");
    assert!(!waiter.is_finished());
    row.injected("connection cut", cut as u64);
    proxy.heal();
    listened(&server, "k:0", 1).await;
    foreign.free(&keys).await;
    waiter.await.unwrap().unwrap();
}

rows! {
    Real: f46_connections_that_end_at_each_subscription_are_not_replaced_in_a_loop,
        f46_connections_for_messages_to_a_busy_server_are_not_replaced_in_a_loop,
        f49_client_of_a_database_waits_for_a_busy_server_that_it_connects_to,
        f49_permit_that_is_dropped_while_the_server_cannot_be_used_goes_back;
}

//! Row 54: a failover behind one address. The old master stays up as a replica, and open connections stay at it.

use distlock::Client;
use distlock_tests::{Proxy, RedisServer, eventually, eventually_eq};
use tokio::time::sleep;

use super::pair::Pair;
use crate::foreign::{Foreign, names};
use crate::row::{Row, rows};
use crate::server::refusals::errors;
use crate::support::{SOON, client_with, default_client, free, listened, ms, waiting, warm_up};

/// Two servers behind one address. New connections lead to the master.
struct OneAddress {
    pair: Pair,
    proxy: Proxy,
}

impl OneAddress {
    async fn start() -> Self {
        let pair = Pair::start().await;
        let proxy = Proxy::start(pair.primary.addr()).await;
        Self { pair, proxy }
    }

    /// The replica has this key.
    async fn replicated(&self, key: &str) {
        let has = || async { self.pair.replica.keys().await.contains(&key.to_owned()) };
        eventually_eq(SOON, "the key at the replica", true, has).await;
    }

    /// The replica is the master from now on, and the old master a replica of the server at `port`.
    async fn fail_over(&self, port: u16) {
        self.pair.promote().await;
        let follow = ["REPLICAOF", "127.0.0.1", &port.to_string()];
        self.pair.primary.cli(&follow).await;
        self.proxy.set_target(self.pair.replica.addr());
    }

    /// One client holds the key, and the other one waits for it and listens at the old master.
    async fn contended(&self) -> (distlock::Guard, [Client; 2]) {
        let url = self.proxy.url();
        let (holder, waiter) = (default_client(&url).await, default_client(&url).await);
        let guard = holder.lock("k").acquire().await.unwrap();
        let waits = waiter.lock("k").acquire().wait(SOON * 3).into_future();
        tokio::spawn(async move { waits.await.unwrap().release().await.unwrap() });
        waiting(&waiter, 1).await;
        listened(&self.pair.primary, "k", 1).await;
        self.replicated("k").await;
        (guard, [holder, waiter])
    }

    /// Subscriptions are at the new master once the clients have sent a command to it.
    async fn subscriptions_follow(&self, guard: distlock::Guard, clients: [Client; 2]) {
        for client in &clients {
            let other = client.lock("other").acquire().wait(SOON).await.unwrap();
            other.release().await.unwrap();
        }
        listened(&self.pair.replica, "k", 1).await;
        guard.release().await.unwrap();
        free(&self.pair.replica, &[&clients[0], &clients[1]]).await;
    }
}

async fn f54_subscriptions_leave_a_demoted_server_behind_one_address(row: &Row) {
    let servers = OneAddress::start().await;
    let (guard, clients) = servers.contended().await;
    let before = errors(&servers.pair.primary, "READONLY").await;
    servers.fail_over(servers.pair.replica.port()).await;
    servers.subscriptions_follow(guard, clients).await;
    let refused = errors(&servers.pair.primary, "READONLY").await - before;
    row.injected("READONLY of a demoted server", refused);
}

async fn f54_subscriptions_leave_a_demoted_server_that_ends_only_the_connections_for_commands(
    row: &Row,
) {
    let servers = OneAddress::start().await;
    let (guard, clients) = servers.contended().await;
    servers.fail_over(servers.pair.replica.port()).await;
    // Connections with subscriptions are another type.
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    let killed: u64 = servers.pair.primary.try_cli(&kill).await.unwrap();
    row.injected("connection ended by a demoted server", killed);
    servers.subscriptions_follow(guard, clients).await;
}

async fn f54_hold_survives_a_failover_from_a_server_that_serves_no_stale_data(row: &Row) {
    let lease = ms(3_000);
    let servers = OneAddress::start().await;
    let stale = ["CONFIG", "SET", "replica-serve-stale-data", "no"];
    servers.pair.primary.cli(&stale).await;
    let short = |builder: distlock::Builder| builder.watchdog_timeout(lease);
    let client = client_with(&servers.proxy.url(), short).await;
    let guard = client.lock("k").acquire().await.unwrap();
    servers.replicated("k").await;
    // Nobody listens on port 1, so the old master never gets the data of the new one.
    servers.fail_over(1).await;
    let refused = || async { errors(&servers.pair.primary, "MASTERDOWN").await };
    eventually(SOON, "a refusal", || async { refused().await > 0 }).await;
    row.injected("MASTERDOWN", refused().await);
    let other = client.lock("other").acquire().wait(SOON).await.unwrap();
    other.release().await.unwrap();
    // The time is the fault: without renewals the hold would be lost.
    sleep(lease * 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    free(&servers.pair.replica, &[&client]).await;
}

/// As behind a balancer that keeps open connections. Nobody knows of the other server's role, as it loads its data.
async fn f54_server_that_loads_its_data_at_the_old_address_is_left(row: &Row) {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    let proxy = Proxy::start(old.addr()).await;
    let patient = |builder: distlock::Builder| builder.unavailable_after(SOON * 3);
    let client = client_with(&proxy.url(), patient).await;
    warm_up(&client).await;
    let mut foreign = Foreign::on(&old).await;
    foreign.hold(&names("heavy", 2_000)).await;
    // 10 ms for each key, 20 s for all, and commands are looked at in between.
    for (setting, value) in [
        ("key-load-delay", "10000"),
        ("loading-process-events-interval-bytes", "1024"),
    ] {
        foreign.send(&["CONFIG", "SET", setting, value]).await;
    }
    let reload = tokio::spawn(async move { foreign.send(&["DEBUG", "RELOAD"]).await });
    let is_loading = || async { old.info("persistence").await["loading"] == "1" };
    eventually_eq(SOON, "loading", true, is_loading).await;
    proxy.set_target(new.addr());
    let guard = client.lock("k").acquire().wait(SOON * 2).await.unwrap();
    assert_eq!(new.keys().await, ["k"]);
    row.injected("LOADING", errors(&old, "LOADING").await);
    guard.release().await.unwrap();
    reload.abort();
}

rows! {
    Real: f54_subscriptions_leave_a_demoted_server_behind_one_address,
        f54_server_that_loads_its_data_at_the_old_address_is_left,
        f54_subscriptions_leave_a_demoted_server_that_ends_only_the_connections_for_commands,
        f54_hold_survives_a_failover_from_a_server_that_serves_no_stale_data;
}

//! Row 79: wakers that panic while a client connects. The first waiter of a connection is told of it, or of a failed try.

use distlock::Client;
use distlock_tests::{Flow, RedisCluster, RedisServer, Select, Way, eventually, eventually_eq};
use tokio::time::timeout;

use super::panics::{KEY, Panics, poll_once, woken};
use crate::row::{Row, rows};
use crate::support::{SOON, client_with, default_client, free, server_and_proxy};

/// The task that connects: a try that fails wakes all that wait for a connection, and a waker panics there. The next connection is
/// made, and the holds are asked for.
async fn f79_panicking_waker_keeps_no_new_connection_from_the_holds(row: &Row) {
    let mut server = RedisServer::start().await;
    // A renewal would find the loss only after a third of this.
    let lease = 10 * SOON;
    let client = client_with(&server.url(), |builder| builder.watchdog_timeout(lease)).await;
    let panics = Panics::of(&client);
    let guard = client.lock(KEY).acquire().await.unwrap();
    server.kill();
    eventually(SOON, "an outage", || async { !client.is_connected() }).await;
    let mut waiter = client.lock("another").acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    // It comes back without its data.
    server.restart().await;
    woken(&panics, 1).await;
    timeout(SOON, guard.lost()).await.expect("told");
    drop((waiter, guard));
    assert!(client.is_connected());
    let again = client.lock(KEY).acquire().await.unwrap();
    again.release().await.unwrap();
    free(&server, &[&client]).await;
    row.injected("waker that panics", panics.woken());
}

/// Nobody is woken before, and the holds are asked for.
async fn f79_waker_that_panics_at_a_new_connection_keeps_it_from_no_hold(row: &Row) {
    let (server, proxy) = server_and_proxy().await;
    let patient = |builder: distlock::Builder| {
        builder
            .watchdog_timeout(30 * SOON)
            .connect_timeout(10 * SOON)
    };
    let client = client_with(&proxy.url(), patient).await;
    let panics = Panics::of(&client);
    let guard = client.lock(KEY).acquire().await.unwrap();
    let hangs = proxy.flow(Select::NEW, Way::Both, Flow::Stall);
    assert!(proxy.cut(Select::ALL) > 0);
    hangs.reach(1, SOON).await;
    let mut waiter = client.lock("another").acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    server.cli(&["FLUSHALL"]).await;
    hangs.lift();
    woken(&panics, 1).await;
    row.injected("waker that panics", panics.woken());
    timeout(SOON, guard.lost()).await.expect("told");
    drop((waiter, guard));
    let again = client.lock(KEY).acquire().await.unwrap();
    again.release().await.unwrap();
    free(&server, &[&client]).await;
}

/// The client holds nothing, so nobody else asks for a connection.
async fn f79_waker_that_panics_at_a_failed_try_leaves_the_client_connecting(row: &Row) {
    let mut server = RedisServer::start().await;
    let client = default_client(&server.url()).await;
    let panics = Panics::of(&client);
    server.kill();
    eventually(SOON, "an outage", || async { !client.is_connected() }).await;
    let mut waiter = client.lock(KEY).acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    woken(&panics, 1).await;
    row.injected("waker that panics", panics.woken());
    drop(waiter);
    server.restart().await;
    let is_connected = || async { client.is_connected() };
    eventually_eq(SOON, "a connection", true, is_connected).await;
}

async fn f79_waker_that_panics_while_a_cluster_is_opened_leaves_it_opening(row: &Row) {
    let builder = RedisCluster::builder().replicas(false).proxies(true);
    let cluster = builder.start().await;
    let refused = cluster.proxy(0).refuse();
    let url = format!("redis+cluster://{}", cluster.proxy(0).addr());
    let client = Client::connect_lazy(&url).unwrap();
    let panics = Panics::of(&client);
    let mut waiter = client.lock(KEY).acquire().into_future();
    assert!(poll_once(&mut waiter, &panics).is_pending());
    woken(&panics, 1).await;
    row.injected("waker that panics", panics.woken());
    drop(waiter);
    refused.lift();
    let is_connected = || async { client.is_connected() };
    eventually_eq(SOON, "a connection", true, is_connected).await;
    let guard = client.lock(KEY).acquire().wait(SOON).await.unwrap();
    guard.release().await.unwrap();
}

rows! {
    Real:
        f79_panicking_waker_keeps_no_new_connection_from_the_holds,
        f79_waker_that_panics_at_a_new_connection_keeps_it_from_no_hold,
        f79_waker_that_panics_at_a_failed_try_leaves_the_client_connecting,
        f79_waker_that_panics_while_a_cluster_is_opened_leaves_it_opening;
}

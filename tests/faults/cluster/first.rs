//! Row 49: the first node that a client of a cluster asks is busy.

use std::future::IntoFuture;

use distlock::Client;
use distlock_tests::{BY_MESSAGE, RedisCluster, eventually};
use tokio::time::timeout;

use super::free;
use crate::row::{Row, rows};
use crate::server::busy::Endless;
use crate::server::refusals::errors;
use crate::support::{SOON, client_with, ms};

/// A waiter at node 1 is subscribed to the messages that the other clients publish, and gets the key.
async fn hears_the_others(cluster: &RedisCluster, holder: &Client, waiter: &Client) {
    let key = cluster.key_at(1, "k:").await;
    let guard = holder.lock(&key).acquire().wait(SOON).await.unwrap();
    let waiting = tokio::spawn(waiter.lock(&key).acquire().wait(SOON * 2).into_future());
    cluster.listened(1, &key).await;
    guard.release().await.unwrap();
    let granted = timeout(BY_MESSAGE, waiting).await.expect("woken");
    granted.unwrap().unwrap().release().await.unwrap();
}

async fn cluster() -> RedisCluster {
    let builder = RedisCluster::builder().replicas(false);
    builder.arg("--lua-time-limit", "10").start().await
}

async fn f49_client_that_starts_while_the_first_node_is_busy_hears_the_messages_of_others(
    row: &Row,
) {
    let cluster = cluster().await;
    let holder = client_with(&cluster.url(), |builder| builder).await;
    let endless = Endless::at(cluster.node(0)).await;
    let waiter = client_with(&cluster.url(), |builder| builder).await;
    endless.kill().await;
    row.injected("BUSY", errors(cluster.node(0), "BUSY").await);
    hears_the_others(&cluster, &holder, &waiter).await;
    free(&cluster, &[holder, waiter]).await;
}

async fn f49_client_that_knows_only_a_busy_node_hears_the_messages_of_others_later(row: &Row) {
    let cluster = cluster().await;
    let holder = client_with(&cluster.url(), |builder| builder).await;
    let busy = cluster.node(0);
    let endless = Endless::at(busy).await;
    let url = format!("redis+cluster://{}", busy.addr());
    let waiter = Client::connect_lazy(&url).unwrap();
    eventually(SOON, "a try that has failed", || async {
        let short = waiter.lock("other").acquire().wait(ms(400)).await;
        match short.unwrap_err() {
            error if error.is_unavailable() => Ok(()),
            error => Err(error),
        }
    })
    .await;
    endless.kill().await;
    row.injected("BUSY", errors(busy, "BUSY").await);
    hears_the_others(&cluster, &holder, &waiter).await;
    free(&cluster, &[holder, waiter]).await;
}

rows! {
    Real:
        f49_client_that_starts_while_the_first_node_is_busy_hears_the_messages_of_others,
        f49_client_that_knows_only_a_busy_node_hears_the_messages_of_others_later;
}

//! Row 64: how long the grace of a server lasts that was restarted without its data.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{Builder, Client};
use distlock_tests::{Proxy, RedisServer, Select, Which, eventually_eq};
use tokio::time::{Instant, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, ms};

/// How long the server has been up, in whole seconds, as it says itself.
async fn uptime(server: &RedisServer) -> u64 {
    let info = server.info("server").await;
    info["uptime_in_seconds"].parse().unwrap()
}

fn graceful(builder: Builder, grace: Duration) -> Builder {
    let builder = builder.restart_grace(grace).connect_timeout(SOON);
    builder.unavailable_after(2 * SOON)
}

/// The client is granted the key, but not before the server has been up for the grace. It was started after `before`.
async fn granted_after(client: &Client, before: Instant, grace: Duration) {
    let guard = client.lock("k").acquire().wait(2 * SOON).await.unwrap();
    let up = before.elapsed();
    assert!(up >= grace, "granted after {up:?} of {grace:?}");
    guard.release().await.unwrap();
}

async fn f64_answer_that_comes_late_does_not_shorten_the_grace(row: &Row) {
    const GRACE: Duration = Duration::from_secs(5);
    let mut server = RedisServer::start().await;
    let proxy = Proxy::start(server.addr()).await;
    let before = Instant::now();
    server.restart().await;
    let question = proxy.hold(Select::ALL, Which::NEXT.containing("$4\r\nINFO"));
    let url = proxy.url();
    let connecting =
        tokio::spawn(async move { client_with(&url, |builder| graceful(builder, GRACE)).await });
    let question = question.caught(SOON).await;
    row.injected("question for the uptime kept back", 1);
    eventually_eq(SOON, "up", true, || async { uptime(&server).await >= 3 }).await;
    timeout(SOON, question.deliver()).await.unwrap().unwrap();
    let client = connecting.await.unwrap();
    granted_after(&client, before, GRACE).await;
}

async fn f64_second_that_the_server_counts_too_much_does_not_shorten_the_grace(row: &Row) {
    const GRACE: Duration = Duration::from_secs(3);
    let mut server = RedisServer::start().await;
    // It subtracts two times that it has cut to whole seconds, so a server that was started in the second half of a second soon
    // says 1.
    let (client, before) = loop {
        eventually_eq(SOON, "second half of a second", true, async || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (450..600).contains(&since.subsec_millis())
        })
        .await;
        let before = Instant::now();
        server.restart().await;
        eventually_eq(SOON, "up", true, || async { uptime(&server).await >= 1 }).await;
        let client = client_with(&server.url(), |builder| graceful(builder, GRACE)).await;
        if before.elapsed() < ms(900) {
            break (client, before);
        }
    };
    row.injected("server that says that it has been up for a second", 1);
    granted_after(&client, before, GRACE).await;
}

rows! {
    Real: f64_answer_that_comes_late_does_not_shorten_the_grace,
        f64_second_that_the_server_counts_too_much_does_not_shorten_the_grace;
}

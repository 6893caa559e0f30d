//! Row 64: a server that was restarted without its data grants nothing for a while.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{Builder, Client, Error, Quorum};
use distlock_tests::{Proxy, RedisServer, Select, Which, eventually_eq};
use tokio::time::{Instant, timeout};

use crate::row::{Row, rows};
use crate::support::{SOON, client_with, default_client, ms};

/// How long the server has been up, in whole seconds, as it says itself.
async fn uptime(server: &RedisServer) -> u64 {
    let info = server.info("server").await;
    info["uptime_in_seconds"].parse().unwrap()
}

/// Waits until the server says that it has been up for so long.
async fn up_for(server: &RedisServer, seconds: u64) {
    eventually_eq(SOON, "up", true, || async {
        uptime(server).await >= seconds
    })
    .await;
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
    up_for(&server, 3).await;
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
        up_for(&server, 1).await;
        let client = client_with(&server.url(), |builder| graceful(builder, GRACE)).await;
        if before.elapsed() < ms(900) {
            break (client, before);
        }
    };
    row.injected("server that says that it has been up for a second", 1);
    granted_after(&client, before, GRACE).await;
}

async fn f64_server_that_was_restarted_grants_nothing_within_the_grace(row: &Row) {
    const GRACE: u64 = 3;
    let mut server = RedisServer::start().await;
    // What it says may be nearly a second too much.
    up_for(&server, GRACE + 1).await;
    let graceful = |builder: Builder| {
        let builder = builder.restart_grace(Duration::from_secs(GRACE));
        builder.unavailable_after(2 * SOON)
    };
    let client = client_with(&server.url(), graceful).await;
    let holder = default_client(&server.url()).await;
    let held = holder.lock("k").acquire().await.unwrap();
    // The server had been up for long enough when the client came.
    drop(client.lock("other").try_acquire().await.unwrap().unwrap());
    server.restart().await;
    row.injected("server restarted without its data", 1);
    let plain = default_client(&server.url()).await;
    let error = loop {
        // The connection may be the old one still.
        match client.lock("k").try_acquire().await {
            Err(error) if error.to_string().contains("restarted") => break error,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
            Ok(granted) => panic!("granted: {granted:?}"),
        }
    };
    println!("{error}");
    assert!(error.is_unavailable(), "{error}");
    drop(
        plain
            .lock("other")
            .try_acquire()
            .await
            .unwrap()
            .expect("no grace"),
    );
    timeout(SOON, held.lost()).await.expect("told");
    let guard = client.lock("k").acquire().wait(2 * SOON).await.unwrap();
    up_for(&server, GRACE).await;
    guard.release().await.unwrap();
}

async fn f64_user_who_may_not_ask_for_the_uptime_is_told_at_connect(row: &Row) {
    let server = RedisServer::start().await;
    let acl = [
        "ACL", "SETUSER", "shop", "on", "nopass", "~*", "&*", "+@all",
    ];
    server.cli(&[&acl[..], &["-info"]].concat()).await;
    row.injected("right taken away", 1);
    let url = server.url().replace("redis://", "redis://shop:pw@");
    let builder = Client::builder().restart_grace(SOON);
    let error = builder.connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::LoginDenied { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("+info") && text.contains("restart_grace"),
        "{text}"
    );
}

async fn f64_forgetful_server_makes_no_second_majority_within_the_grace(row: &Row) {
    let [steady, mut forgetful, late] = [
        RedisServer::start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ];
    let grace = |builder: Builder| builder.restart_grace(SOON * 6);
    let (to_forgetful, to_late) = (
        Proxy::start(forgetful.addr()).await,
        Proxy::start(late.addr()).await,
    );
    let holder = [
        client_with(&steady.url(), |builder| builder).await,
        client_with(&to_forgetful.url(), |builder| builder).await,
        client_with(&to_late.url(), |builder| builder).await,
    ];
    let late_is_away = to_late.refuse();
    let _connections = to_late.cut(Select::ALL);
    let held = Quorum::new(holder).lock("k").acquire().await.unwrap();
    assert!(late.keys().await.is_empty() && !forgetful.keys().await.is_empty());
    let forgetful_is_away = to_forgetful.refuse();
    let cut = to_forgetful.cut(Select::ALL);
    forgetful.restart().await;
    row.injected(
        "server of a Redlock restarted without its data",
        cut.min(1) as u64,
    );

    let mut careful = Vec::new();
    let mut careless = Vec::new();
    for server in [&steady, &forgetful, &late] {
        careless.push(default_client(&server.url()).await);
        // The one that was not restarted has been up for as long as the clients need.
        let set = |builder: Builder| {
            if server.pid() == forgetful.pid() {
                grace(builder)
            } else {
                builder
            }
        };
        careful.push(client_with(&server.url(), set).await);
    }
    let refused = Quorum::new(careful).lock("k").try_acquire().await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
    // It waits until what the careful one has tried is over.
    let second = Quorum::new(careless).lock("k").acquire().wait(SOON).await;
    let second = second.expect("a second majority, without the grace");
    assert!(second.is_held() && held.is_held());
    drop((late_is_away, forgetful_is_away));
}

rows! {
    Real: f64_server_that_was_restarted_grants_nothing_within_the_grace,
        f64_forgetful_server_makes_no_second_majority_within_the_grace,
        f64_user_who_may_not_ask_for_the_uptime_is_told_at_connect,
        f64_answer_that_comes_late_does_not_shorten_the_grace,
        f64_second_that_the_server_counts_too_much_does_not_shorten_the_grace;
}

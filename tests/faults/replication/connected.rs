//! Row 56: grants that the replicas confirm which are connected, and the append-only file.

use distlock::{Builder, Client, Error, Replicas};
use distlock_tests::log::lines_with;
use distlock_tests::server::free_port;
use distlock_tests::{RedisServer, lock_once};

use super::pair::{Pair, TIMEOUT, assert_unconfirmed};
use crate::row::{Row, rows};
use crate::support::{SOON, client_with, free};

/// A client whose grants all connected replicas of the server confirm.
async fn client(server: &RedisServer, set: impl FnOnce(Builder) -> Builder) -> Client {
    let connected = |builder: Builder| {
        let builder = builder.replicas(Replicas::Connected, TIMEOUT);
        let builder = builder.unavailable_after(2 * TIMEOUT);
        set(builder.response_timeout(SOON))
    };
    client_with(&server.url(), connected).await
}

async fn f56_connected_replicas_confirm_and_a_server_without_any_grants_alone(row: &Row) {
    let mut pair = Pair::start().await;
    let client = client(&pair.primary, |builder| builder).await;
    lock_once(&client, "k").await;
    let waits = pair.primary.command_calls("wait").await;
    assert!(waits >= 1, "the replica was not asked");
    // It is connected, and does not answer.
    pair.replica.stop();
    row.injected("replica that does not answer", 1);
    assert_unconfirmed(&client.lock("k").try_acquire().await.unwrap_err());
    pair.replica.cont();
    pair.cut().await;
    row.injected("server without a replica", 1);
    let before = pair.primary.command_calls("wait").await;
    let guard = client.lock("k").acquire().wait(SOON).await.unwrap();
    assert_eq!(pair.primary.command_calls("wait").await, before);
    guard.release().await.unwrap();
    pair.join().await;
    lock_once(&client, "k").await;
    assert!(pair.primary.command_calls("wait").await > before);
    free(&pair.primary, &[&client]).await;
}

async fn f56_append_only_file_is_asked_where_there_is_one_and_a_server_that_cannot_is_told(
    row: &Row,
) {
    let on_disk = |builder: Builder| builder.replicas_on_disk(true);
    let without = RedisServer::start().await;
    let plain = client(&without, on_disk).await;
    lock_once(&plain, "k").await;

    // By default the file is written to disk once a second, which is longer than the replicas have in this test.
    let with = RedisServer::builder()
        .arg("--appendonly", "yes")
        .arg("--appendfsync", "always")
        .start()
        .await;
    let client = client(&with, on_disk).await;
    let granted = client.lock("k").acquire().wait(SOON).await;
    let known = with.cli(&["COMMAND", "INFO", "WAITAOF"]).await;
    let knows = !format!("{known:?}").contains("nil");
    row.injected("append-only file", 1);
    if knows {
        granted.unwrap().release().await.unwrap();
        assert!(with.command_calls("waitaof").await >= 1);
    } else {
        let error = granted.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
        assert!(
            text.contains("WAITAOF") && text.contains("`replicas_on_disk`"),
            "{text}"
        );
    }
    free(&with, &[&client]).await;
}

async fn f56_client_of_sentinels_or_a_cluster_whose_grants_nobody_confirms_says_so_once(row: &Row) {
    let port = free_port();
    let confirmed = "?replicas=connected&replicas_timeout=1s";
    for (url, expected) in [
        (format!("redis+sentinel://127.0.0.1:{port}/locks"), 1),
        (format!("redis+cluster://127.0.0.1:{port}"), 1),
        (format!("redis://127.0.0.1:{port}"), 0),
        (
            format!("redis+sentinel://127.0.0.1:{port}/locks{confirmed}"),
            0,
        ),
        (format!("redis+cluster://127.0.0.1:{port}{confirmed}"), 0),
    ] {
        let address = port.to_string();
        let told = || lines_with(&["INFO", "`replicas=connected`", &address]);
        let before = told();
        let _client = Client::connect_lazy(&url).unwrap();
        assert_eq!(told() - before, expected, "{url}");
    }
    row.injected("server that is not there", 5);
}

rows! {
    Real: f56_client_of_sentinels_or_a_cluster_whose_grants_nobody_confirms_says_so_once,
        f56_connected_replicas_confirm_and_a_server_without_any_grants_alone,
        f56_append_only_file_is_asked_where_there_is_one_and_a_server_that_cannot_is_told;
}

//! Servers that a client cannot use: each is refused at once, with an error that says what to do.

use distlock::{Client, Error};
use distlock_tests::{RedisServer, eventually, eventually_eq};
use tokio::time::timeout;

use super::SOON;

/// The error of a client that connects, told before any retry could have helped.
async fn refused(url: &str) -> String {
    // Far below the 5 s for which a server that may come back is asked again.
    let connecting = timeout(SOON, Client::connect(url));
    let start = std::time::Instant::now();
    let error = connecting.await.expect("an answer").unwrap_err();
    let unsupported = matches!(&error, Error::UnsupportedServer { .. });
    assert!(unsupported && error.is_permanent(), "{error}");
    assert!(
        start.elapsed() < std::time::Duration::from_secs(4),
        "retried"
    );
    error.to_string()
}

/// A server that knows a command by another name. The second renaming makes the number of words even.
async fn renaming(command: &str) -> RedisServer {
    let builder = RedisServer::builder()
        .arg("--rename-command", command)
        .arg("HIDDEN", "--rename-command")
        .arg("LOLWUT", "LOLWHAT");
    builder.start().await
}

#[tokio::test]
async fn server_without_resp3_is_refused_at_once() {
    let server = renaming("HELLO").await;
    let text = refused(&server.url()).await;
    assert!(
        text.contains("RESP3") && text.contains("Redis 6.0"),
        "{text}"
    );
    assert!(text.contains(&server.addr().to_string()), "{text}");
}

#[tokio::test]
async fn database_out_of_range_is_refused_at_once() {
    let server = RedisServer::start().await;
    let text = refused(&format!("{}/99", server.url())).await;
    assert!(text.contains("does not have the database"), "{text}");
    let inside = Client::connect(&format!("{}/3", server.url())).await;
    drop(inside.unwrap().lock("k").acquire().await.unwrap());
}

#[tokio::test]
async fn node_of_a_cluster_is_refused_at_once() {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes");
    let server = server.start().await;
    let text = refused(&server.url()).await;
    assert!(text.contains("node of a cluster"), "{text}");
}

#[tokio::test]
async fn server_without_a_command_that_locks_need_is_refused_at_once() {
    for command in ["PUBLISH", "DEL", "EVALSHA", "EVAL"] {
        let server = renaming(command).await;
        let text = refused(&server.url()).await;
        assert!(
            text.contains(&format!("does not know {command},")),
            "{text}"
        );
        assert!(text.contains("rename-command"), "{text}");
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
}

#[tokio::test]
async fn server_that_loads_its_data_is_asked_for_its_commands_by_the_next_connection() {
    let server = renaming("EVALSHA").await;
    server.cli(&["DEBUG", "POPULATE", "1500"]).await;
    // 20 ms for each key, until the client has connected. Commands are looked at in between.
    for (setting, value) in [
        ("key-load-delay", "20000"),
        ("loading-process-events-interval-bytes", "1024"),
    ] {
        server.cli(&["CONFIG", "SET", setting, value]).await;
    }
    let mut connection = server.connection().await;
    let reload = tokio::spawn(async move {
        let mut reload = redis::cmd("DEBUG");
        let reload = reload.arg("RELOAD").query_async::<()>(&mut connection);
        reload.await
    });
    let loads = async || server.info("persistence").await["loading"].clone();
    eventually_eq(SOON, "loading", "1".to_owned(), loads).await;
    let client = Client::connect_lazy(&server.url()).unwrap();
    let connected = async || client.is_connected();
    eventually_eq(SOON, "connected while it loads", true, connected).await;
    assert_eq!(
        loads().await,
        "1",
        "it has loaded its data before the client has connected"
    );
    server.cli(&["CONFIG", "SET", "key-load-delay", "0"]).await;
    // The harness may have given up waiting for the answer.
    let _answer = reload.await.unwrap();
    eventually_eq(SOON, "loading", "0".to_owned(), loads).await;
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let state = async || match client.health().to_string() {
        text if text.contains("does not know EVALSHA,") => Ok(()),
        text => Err(text),
    };
    eventually(SOON, "the missing command", state).await;
}

#[tokio::test]
async fn server_without_a_command_of_another_primitive_serves_locks_and_says_what_to_do() {
    let server = renaming("LINDEX").await;
    let client = Client::connect(&server.url()).await.unwrap();
    client
        .lock("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let fair = timeout(SOON, client.fair_lock("k").acquire().into_future());
    let error = fair.await.expect("an answer").unwrap_err();
    assert!(
        matches!(&error, Error::Protocol { .. }) && error.is_permanent(),
        "{error:?}"
    );
    assert!(error.to_string().contains("rename-command"), "{error}");
}

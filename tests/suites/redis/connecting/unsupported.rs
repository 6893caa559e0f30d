//! Servers that a client cannot use: each is refused at once, with an error that says what to do.

use distlock::{Client, Error};
use distlock_tests::{RedisCluster, RedisServer, eventually, eventually_eq, lock_once};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::redis::SOON;

/// The error of a client that connects, told before any retry could have helped.
async fn refused(url: &str) -> String {
    // One for which a server that may come back would be asked again is far longer.
    let connecting = Client::builder().connect_timeout(6 * SOON);
    let connecting = timeout(SOON, connecting.connect(url));
    let error = connecting.await.expect("told at once").unwrap_err();
    let unsupported = matches!(&error, Error::UnsupportedServer { .. });
    assert!(unsupported && error.is_permanent(), "{error}");
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
async fn cluster_without_numbered_databases_refuses_one_in_its_own_words() {
    let cluster = RedisCluster::shared().await;
    let url = format!("{}/3", cluster.url());
    let connecting = timeout(SOON, Client::connect(&url));
    let error = connecting.await.expect("an answer").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    // The second is what Valkey 9 says, whose clusters have one database unless `cluster-databases` says another number.
    let words = [
        "SELECT is not allowed in cluster mode",
        "DB index is out of range",
    ];
    assert!(words.iter().any(|words| text.contains(words)), "{text}");
    assert!(text.contains("Valkey 9"), "{text}");
    Client::connect(&format!("{}/0", cluster.url()))
        .await
        .unwrap();
}

#[tokio::test]
async fn node_of_a_cluster_is_refused_at_once() {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes");
    let server = server.start().await;
    let text = refused(&server.url()).await;
    assert!(text.contains("node of a cluster"), "{text}");
}

/// A proxy behind which a node of a cluster looks like a single server, as at some providers.
async fn as_standalone(server: &RedisServer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (own, behind) = (listener.local_addr().unwrap(), server.addr());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(behind).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    let text = text.replace("$7\r\ncluster\r\n", "$10\r\nstandalone\r\n");
                    if to_client.write_all(text.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("redis://{own}")
}

#[tokio::test]
async fn keys_of_several_slots_behind_a_proxy_need_a_common_hash_tag() {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes");
    let server = server.start().await;
    server
        .cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    let client = Client::connect(&as_standalone(&server).await)
        .await
        .unwrap();
    let works = || async { client.lock("one").acquire().wait(SOON).await.is_ok() };
    eventually_eq(SOON, "the cluster is up", true, works).await;
    let locks = |keys: [&str; 2]| client.multi_lock(keys);
    let error = locks(["order", "stock"]).acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{text}");
    assert!(
        text.contains("common hash tag") && text.contains("`{cart:1}:order`"),
        "{text}"
    );
    let guard = locks(["{cart:1}:order", "{cart:1}:stock"]).acquire().await;
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn server_without_a_command_that_locks_need_is_refused_at_once() {
    for command in ["DEL", "EVALSHA", "EVAL"] {
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
    // 20 ms for each key, until the client has connected. Commands are looked at after each kilobyte: after each key.
    server
        .cli(&["DEBUG", "POPULATE", "3000", "key", "1024"])
        .await;
    for (setting, value) in [
        ("rdbcompression", "no"),
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
    lock_once(&client, "k").await;
    let fair = timeout(SOON, client.fair_lock("k").acquire().into_future());
    let error = fair.await.expect("an answer").unwrap_err();
    assert!(
        matches!(&error, Error::Protocol { .. }) && error.is_permanent(),
        "{error:?}"
    );
    assert!(error.to_string().contains("rename-command"), "{error}");
}

//! Servers start, die, come back, stand still, and end with their owners.

use std::future::ready;
use std::net::TcpListener;
use std::path::PathBuf;

use distlock_tests::server::loopback;
use distlock_tests::{Process, RedisServer, eventually};
use redis::AsyncCommands;
use redis::Value;
use rustix::process::{Pid, test_kill_process};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{BRIEF, SOON, panics};

pub(super) fn exists(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    test_kill_process(pid).is_ok()
}

#[tokio::test]
async fn dropped_server_is_gone() {
    let server = RedisServer::start().await;
    let (pid, addr) = (server.pid(), server.addr());
    assert!(exists(pid));
    drop(server);
    assert!(!exists(pid));
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn stopped_server_is_gone_after_drop() {
    let mut server = RedisServer::start().await;
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid));
}

#[tokio::test]
async fn server_dies_with_a_killed_test_process() {
    let mut orphan = Process::start(env!("CARGO_BIN_EXE_orphan_process"), [""; 0]);
    let told = orphan.json(SOON * 4).await;
    let addr = loopback(told[0].as_u64().unwrap().try_into().unwrap());
    assert!(TcpStream::connect(addr).await.is_ok());
    let dir = PathBuf::from(told[2].as_str().unwrap());
    assert!(dir.exists());
    orphan.kill();
    eventually(SOON, "the server to die", || async {
        TcpStream::connect(addr).await.is_err()
    })
    .await;
    eventually(SOON, "its directory to go", || ready(!dir.exists())).await;
}

#[tokio::test]
async fn killed_server_comes_back_on_its_port_and_empty() {
    let mut server = RedisServer::start().await;
    let (pid, port) = (server.pid(), server.port());
    server.cli(&["SET", "key", "value"]).await;
    server.kill();
    assert!(server.try_cli::<Value>(&["PING"]).await.is_err());
    server.restart().await;
    assert_ne!(server.pid(), pid);
    assert_eq!((server.port(), server.keys().await.len()), (port, 0));
}

#[tokio::test]
async fn append_only_server_loses_nothing_by_a_kill() {
    let mut server = RedisServer::builder().appendonly(true).start().await;
    let mut connection = server.connection().await;
    for round in 1..=5 {
        for key in 0..100 {
            connection
                .set::<_, _, ()>(format!("{round}:{key}"), round)
                .await
                .unwrap();
        }
        // `restart` kills at once: the last answer is younger than any background sync.
        server.restart().await;
        assert_eq!(server.keys().await.len(), round * 100);
        connection = server.connection().await;
    }
}

#[tokio::test]
async fn stopped_server_answers_only_after_cont() {
    let mut server = RedisServer::start().await;
    let mut connection = server.connection().await;
    server.stop();
    let ping = redis::cmd("PING");
    let mut answer = Box::pin(ping.query_async::<String>(&mut connection));
    assert!(timeout(BRIEF, &mut answer).await.is_err());
    server.cont();
    assert_eq!(timeout(SOON, answer).await.unwrap().unwrap(), "PONG");
}

#[tokio::test]
async fn restart_on_a_taken_port_says_so() {
    let mut server = RedisServer::start().await;
    server.kill();
    let _stranger = TcpListener::bind(server.addr()).unwrap();
    let text = panics(async move { server.restart().await }).await;
    assert!(text.contains("was taken by somebody else"), "{text}");
}

#[tokio::test]
async fn restart_does_not_take_a_stranger_for_its_server() {
    let mut server = RedisServer::start().await;
    server.kill();
    let port = server.port().to_string();
    let _stranger = Process::start("redis-server", ["--save", "", "--port", &port]);
    let client = server.client();
    eventually(SOON, "the stranger", || async {
        client.get_multiplexed_async_connection().await.is_ok()
    })
    .await;
    let text = panics(async move { server.restart().await }).await;
    assert!(text.contains("was taken by somebody else"), "{text}");
}

#[tokio::test]
async fn refused_setting_fails_with_the_log() {
    let text = panics(RedisServer::builder().arg("--no-such-setting", "1").start()).await;
    assert!(text.contains("no-such-setting"), "{text}");
}

#[tokio::test]
async fn missing_program_says_what_to_install() {
    let args = [
        "DISTLOCK_TEST_SERVER=/no/such/program",
        env!("CARGO_BIN_EXE_orphan_process"),
    ];
    let mut process = Process::start("env", args);
    assert!(!process.wait(SOON).await.success());
    let text = process.stderr();
    assert!(text.contains("apt-get install redis-server"), "{text}");
}

#[tokio::test]
async fn questions_tell_what_the_server_knows() {
    let server = RedisServer::builder()
        .arg("--maxclients", "77")
        .start()
        .await;
    server.cli(&["HSET", "hash", "owner", "1"]).await;
    assert_eq!(server.pttl("hash").await, -1);
    assert_eq!(server.pttl("none").await, -2);
    server.cli(&["PEXPIRE", "hash", "60000"]).await;
    assert!((1..=60_000).contains(&server.pttl("hash").await));
    assert_eq!(server.hgetall("hash").await["owner"], "1");
    assert_eq!(server.keys().await, ["hash"]);
    assert_eq!(server.command_calls("PEXPIRE").await, 1);
    assert_eq!(server.command_calls("evalsha").await, 0);
    assert_eq!(server.info("clients").await["maxclients"], "77");
    assert!(server.log().contains("Ready to accept connections"));
    let error = server.try_cli::<i64>(&["HGET", "hash"]).await.unwrap_err();
    assert!(
        error.to_string().contains("wrong number of arguments"),
        "{error}"
    );
}

#[tokio::test]
async fn killed_subscribers_are_counted_and_gone() {
    let server = RedisServer::start().await;
    let mut pubsub = server.client().get_async_pubsub().await.unwrap();
    pubsub.subscribe("channel").await.unwrap();
    assert_eq!(server.pubsub_channels().await, ["channel"]);
    assert_eq!(server.pubsub_numsub("channel").await, 1);
    let clients = server.client_list().await;
    let subscriber = clients.iter().find(|client| client.subscribes()).unwrap();
    assert!(!subscriber.is_harness() && subscriber.field("cmd").contains("subscribe"));
    assert_eq!(server.kill_clients("pubsub").await, 1);
    assert_eq!(server.pubsub_numsub("channel").await, 0);
}

//! Cuts, closed directions and refused connections.

use distlock_tests::{Leaks, Select, Way, eventually, eventually_eq};
use redis::{AsyncTypedCommands, Client};
use tokio::net::TcpStream;

use super::super::SOON;
use super::{connect, is_gone, pair, soon, try_connect};

#[tokio::test]
async fn cut_is_a_reset_for_both_sides() {
    let (server, proxy) = pair().await;
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    eventually(SOON, "the connection", || async {
        proxy.connections().len() == 1
    })
    .await;
    let mut client = connect(&proxy).await;
    assert_eq!(proxy.cut(Select::ALL), 2);
    stream.readable().await.unwrap();
    let error = stream.try_read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(is_gone(&soon(client.ping()).await.unwrap_err()));
    let others = || async {
        server
            .client_list()
            .await
            .iter()
            .all(|client| client.is_harness())
    };
    eventually(SOON, "the server to see it", others).await;
    assert_eq!(proxy.cut(Select::ALL), 0);
}

#[tokio::test]
async fn cut_of_a_role_spares_the_other() {
    let (_server, proxy) = pair().await;
    let mut commands = connect(&proxy).await;
    commands.get("key").await.unwrap();
    let client = Client::open(proxy.url()).unwrap();
    let mut pubsub = client.get_async_pubsub().await.unwrap();
    pubsub.subscribe("channel").await.unwrap();
    assert_eq!(proxy.cut(Select::SUBSCRIBERS), 1);
    let (_, mut stream) = pubsub.split();
    assert!(
        soon(futures_util::StreamExt::next(&mut stream))
            .await
            .is_none()
    );
    commands.get("key").await.unwrap();
    assert_eq!(proxy.cut(Select::NEW), 0);
}

#[tokio::test]
async fn cut_after_some_bytes_tears_a_reply() {
    let (server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    client.set("key", "x".repeat(1_000)).await.unwrap();
    let cut = proxy.cut_after(Select::EXISTING, Way::Down, 500);
    client.ping().await.unwrap();
    assert_eq!(cut.hits(), 0);
    assert!(is_gone(&soon(client.get("key")).await.unwrap_err()));
    assert_eq!((cut.hits(), server.command_calls("get").await), (1, 1));
}

#[tokio::test]
async fn fin_down_ends_the_replies_but_not_the_requests() {
    let (server, proxy) = pair().await;
    let stream = TcpStream::connect(proxy.addr()).await.unwrap();
    eventually(SOON, "the connection", || async {
        proxy.connections().len() == 1
    })
    .await;
    assert_eq!(proxy.fin(Select::ALL, Way::Down), 1);
    stream.readable().await.unwrap();
    assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(stream.try_write(b"SET key 1\r\n").unwrap(), 11);
    eventually_eq(SOON, "keys", 1, || async { server.keys().await.len() }).await;
}

#[tokio::test]
async fn fin_up_is_the_end_of_the_client_for_the_server() {
    let (_server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    assert_eq!(proxy.fin(Select::ALL, Way::Up), 1);
    assert!(is_gone(&soon(client.get("key")).await.unwrap_err()));
    eventually_eq(SOON, "open connections", 0, || async {
        proxy.connections().len()
    })
    .await;
}

#[tokio::test]
async fn refused_are_only_new_connections() {
    let (_server, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let refuse = proxy.refuse();
    assert!(is_gone(&try_connect(&proxy, "").await.unwrap_err()));
    client.ping().await.unwrap();
    assert_eq!((refuse.hits(), proxy.accepted()), (1, 2));
    refuse.lift();
    connect(&proxy).await;
}

#[tokio::test]
async fn many_clients_and_random_cuts_leave_nothing_behind() {
    let (server, proxy) = pair().await;
    let leaks = Leaks::baseline(&server).await;
    for bytes in (0..1_000).step_by(37) {
        let way = if bytes % 2 == 0 { Way::Up } else { Way::Down };
        let cut = proxy.cut_after(Select::NEW, way, bytes);
        let client = try_connect(&proxy, "").await;
        if let Ok(mut client) = client {
            while soon(client.incr("n", 1)).await.is_ok() {}
        }
        assert_eq!(cut.hits(), 1);
    }
    server.cli(&["DEL", "n"]).await;
    leaks.check(&server, "").await;
}

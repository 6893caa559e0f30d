//! What no well-behaved client or server shows: single segments, resets, and answers in an order
//! that the test chooses. Both ends are plain sockets here.

use std::io::ErrorKind;

use distlock_tests::proxy::Role;
use distlock_tests::{Flow, Proxy, Select, Way, Which};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::SOON;
use super::soon;

const SUBSCRIBE: &str = "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n";

/// A client's and a server's end with a proxy between them.
async fn ends() -> (TcpStream, TcpStream, Proxy) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await;
    let client = TcpStream::connect(proxy.addr()).await.unwrap();
    let (server, _) = soon(listener.accept()).await.unwrap();
    (client, server, proxy)
}

/// Sends a text and waits until it has come whole at the other end.
async fn send(from: &mut TcpStream, to: &mut TcpStream, text: &str) {
    from.write_all(text.as_bytes()).await.unwrap();
    let mut came = vec![0; text.len()];
    soon(to.read_exact(&mut came)).await.unwrap();
    assert_eq!(String::from_utf8(came).unwrap(), text);
}

#[tokio::test]
async fn rechunked_bytes_come_one_by_one() {
    let (mut client, mut server, proxy) = ends().await;
    let rechunk = proxy.flow(Select::ALL, Way::Down, Flow::Rechunk(1));
    server
        .write_all(b"+0123456789012345678901234567890123456789\r\n")
        .await
        .unwrap();
    let (mut came, mut reads) = (Vec::new(), 0);
    while !came.ends_with(b"\r\n") {
        soon(client.read_buf(&mut came)).await.unwrap();
        reads += 1;
    }
    // Some may have been put together by the kernel, but not all.
    assert!(reads > 10, "{reads} reads");
    assert_eq!(rechunk.hits(), 1);
}

#[tokio::test]
async fn reset_by_the_server_reaches_the_client() {
    let (mut client, mut server, _proxy) = ends().await;
    // So that the proxy has both ends before one is reset.
    send(&mut client, &mut server, "PING\r\n").await;
    server.set_zero_linger().unwrap();
    drop(server);
    assert_cut(&mut client).await;
}

#[tokio::test]
async fn reset_by_the_client_does_not_destroy_what_it_had_sent() {
    let (mut client, mut server, proxy) = ends().await;
    let stall = proxy.flow(Select::ALL, Way::Up, Flow::Stall);
    client.write_all(b"PING\r\n").await.unwrap();
    stall.reach(1, SOON).await;
    client.set_zero_linger().unwrap();
    drop(client);
    stall.lift();
    let mut came = String::new();
    soon(server.read_to_string(&mut came)).await.unwrap();
    assert_eq!(came, "PING\r\n");
}

#[tokio::test]
async fn push_before_the_reply_is_delivered_and_not_eaten() {
    let (mut client, mut server, proxy) = ends().await;
    let eat = proxy.eat_reply(Select::ALL, Which::NEXT);
    send(&mut client, &mut server, "*1\r\n$4\r\nPING\r\n").await;
    let push = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n";
    send(&mut server, &mut client, push).await;
    assert_eq!(eat.hits(), 0);
    server.write_all(b"+PONG\r\n").await.unwrap();
    assert_cut(&mut client).await;
    assert_eq!(eat.hits(), 1);
}

#[tokio::test]
async fn resp2_message_before_the_reply_is_delivered_and_not_eaten() {
    let (mut client, mut server, proxy) = ends().await;
    send(&mut client, &mut server, SUBSCRIBE).await;
    let eat = proxy.eat_reply(Select::SUBSCRIBERS, Which::NEXT);
    send(&mut client, &mut server, "*1\r\n$4\r\nPING\r\n").await;
    let confirmed = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    send(&mut server, &mut client, confirmed).await;
    let message = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n";
    send(&mut server, &mut client, message).await;
    assert_eq!(eat.hits(), 0);
    server
        .write_all(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n")
        .await
        .unwrap();
    assert_cut(&mut client).await;
    assert_eq!(eat.hits(), 1);
}

#[tokio::test]
async fn refused_subscription_does_not_shift_the_replies() {
    let (mut client, mut server, proxy) = ends().await;
    send(&mut client, &mut server, SUBSCRIBE).await;
    send(&mut server, &mut client, "-NOPERM no\r\n").await;
    let eat = proxy.eat_reply(Select::ALL, Which::NEXT);
    send(&mut client, &mut server, "PING\r\n").await;
    server.write_all(b"+PONG\r\n").await.unwrap();
    assert_cut(&mut client).await;
    assert_eq!(eat.hits(), 1);
}

#[tokio::test]
async fn data_for_a_replica_is_no_reply_and_is_not_waited_for() {
    let (mut client, mut server, proxy) = ends().await;
    send(&mut client, &mut server, "REPLCONF capa eof\r\n").await;
    // A file behind its length: it lacks the end that a reply has.
    send(&mut server, &mut client, "$10\r\n0123456789").await;
    let connection = proxy.connections()[0];
    assert_eq!((connection.role, connection.replies), (Role::Replica, 0));
}

#[tokio::test]
async fn connections_of_sentinels_are_told_from_those_of_clients() {
    let name = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n";
    for (of, role) in [
        ("sentinel-1-cmd", Role::Sentinel),
        ("orders-sentinel", Role::Commands),
    ] {
        let (mut client, mut server, proxy) = ends().await;
        let named = format!("{name}${}\r\n{of}\r\n", of.len());
        send(&mut client, &mut server, &named).await;
        send(&mut client, &mut server, "INFO\r\n").await;
        assert_eq!(proxy.connections()[0].role, role);
    }
}

async fn assert_cut(client: &mut TcpStream) {
    let error = soon(client.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

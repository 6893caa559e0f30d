//! Clients that send their request's body slowly, to two servers that share a Redis.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use distlock::Client;
use distlock_tests::{RedisServer, eventually};
use distlock_tower::LockLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

async fn serve(redis: &RedisServer, body_timeout: Duration) -> (Client, SocketAddr) {
    let locks = Client::connect(&redis.url()).await.unwrap();
    let layer = LockLayer::new(&locks)
        .key(|Path(id): Path<u32>| format!("upload:{id}"))
        .wait(Duration::ZERO)
        .request_body_timeout(body_timeout);
    let upload = async |body: String| format!("{} bytes", body.len());
    let app = Router::new().route("/upload/{id}", post(upload).route_layer(layer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    (locks, address)
}

/// Announces ten bytes and sends one. `more`: further lines of the head.
async fn begin(address: SocketAddr, more: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /upload/7 HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n{more}\r\nx");
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

async fn post_whole(address: SocketAddr) -> reqwest::Response {
    // Proxies that the environment names do not reach this server.
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = http.post(format!("http://{address}/upload/7"));
    request.body("0123456789").send().await.unwrap()
}

#[tokio::test]
async fn client_that_stops_sending_is_cut_and_another_server_gets_the_lock() {
    let answer = cut_and_another_server_gets_the_lock("").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("urn:distlock:body-timeout"), "{answer}");
}

#[tokio::test]
async fn client_that_says_it_is_grpc_is_cut_like_any_other() {
    let grpc = "content-type: application/grpc\r\n";
    let answer = cut_and_another_server_gets_the_lock(grpc).await;
    assert!(answer.contains("grpc-status: 4\r\n"), "{answer}");
}

/// Returns the answer to the slow client. `more`: further lines of its head.
async fn cut_and_another_server_gets_the_lock(more: &str) -> String {
    let redis = RedisServer::start().await;
    let (locks, one) = serve(&redis, Duration::from_secs(2)).await;
    let (_other_locks, other) = serve(&redis, Duration::from_secs(2)).await;
    let mut slow = begin(one, more).await;
    let lock = locks.lock("upload:7");
    let held = || async { lock.is_locked().await.unwrap().then_some(()).ok_or(()) };
    eventually(SOON, "the slow request has the lock", held).await;

    // The connection ends by itself, although the client keeps it open.
    let mut answer = String::new();
    let reading = timeout(SOON, slow.read_to_string(&mut answer)).await;
    reading.expect("not cut").unwrap();
    let next = post_whole(other).await;
    assert_eq!(next.text().await.unwrap(), "10 bytes");
    answer
}

#[tokio::test]
async fn client_that_sends_the_rest_in_time_is_served_while_others_are_busy() {
    let redis = RedisServer::start().await;
    let (locks, one) = serve(&redis, Duration::from_secs(60)).await;
    let (_other_locks, other) = serve(&redis, Duration::from_secs(60)).await;
    let mut slow = begin(one, "").await;
    let lock = locks.lock("upload:7");
    let held = || async { lock.is_locked().await.unwrap().then_some(()).ok_or(()) };
    eventually(SOON, "the slow request has the lock", held).await;
    assert_eq!(post_whole(other).await.status(), 409);

    slow.write_all(b"123456789").await.unwrap();
    let mut answer = [0; 12];
    timeout(SOON, slow.read_exact(&mut answer))
        .await
        .expect("no answer")
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(post_whole(other).await.status(), 200);
}

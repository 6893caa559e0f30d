//! Clients that write their whole request before they read: they see an early answer if the rest of their body is read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use distlock::Client;
use distlock_tower::LockLayer;
use futures_util::stream;
use http::request::Parts;
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tower::ServiceExt as _;

use crate::support::{DEADLINE, SEC};

/// Less than the layer reads, and more than the buffers of the sockets take.
const UPLOAD: usize = 3_900_000;

/// The system grows buffers whose size nobody sets to more than an upload.
const BUFFER: u32 = 16 * 1024;

fn socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(BUFFER).unwrap();
    socket.set_send_buffer_size(BUFFER).unwrap();
    socket
}

const MIB: usize = 1024 * 1024;

fn app(client: &Client, drain_limit: Option<u64>) -> Router {
    let by_path = LockLayer::new(client)
        .key(|parts: &Parts| parts.uri.path().to_owned())
        .wait(Duration::ZERO);
    let by_body = LockLayer::new(client).key_from_body(10, |_, _| "key");
    let (by_path, by_body) = match drain_limit {
        Some(limit) => (by_path.drain_limit(limit), by_body.drain_limit(limit)),
        None => (by_path, by_body),
    };
    let upload = async |body: Bytes| format!("{} bytes", body.len());
    Router::new()
        .route("/busy", post(upload).route_layer(by_path))
        .route("/large", post(upload).route_layer(by_body))
}

async fn serve(client: &Client, drain_limit: Option<u64>) -> SocketAddr {
    let app = app(client, drain_limit);
    let socket = socket();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(64).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    address
}

fn head(path: &str, length: usize, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n{more}\r\n")
}

/// Writes the whole request, and only then reads.
async fn upload(address: SocketAddr, path: &str, length: usize) -> std::io::Result<String> {
    let mut connection = socket().connect(address).await?;
    let request = head(path, length, "");
    connection.write_all(request.as_bytes()).await?;
    for _ in 0..length / 65_000 {
        connection.write_all(&[b'x'; 65_000]).await?;
    }
    connection.write_all(&vec![b'x'; length % 65_000]).await?;
    let mut status = vec![0; 12];
    connection.read_exact(&mut status).await?;
    Ok(String::from_utf8_lossy(&status).into_owned())
}

/// The status that a client sees. The layer reads for a second and no longer, so an upload that fails after that was too slow, on a busy
/// machine, and is played again.
async fn status_of(upload: impl AsyncFn() -> std::io::Result<String>) -> String {
    for _ in 0..10 {
        let since = Instant::now();
        let answer = tokio::time::timeout(DEADLINE, upload()).await;
        match answer.expect("hung") {
            Err(_) if since.elapsed() >= SEC => {}
            answer => return answer.unwrap(),
        }
    }
    panic!("each upload was too slow");
}

#[tokio::test]
async fn client_that_writes_all_before_it_reads_sees_the_status() {
    let client = Client::in_memory();
    let _held = client.lock("/busy").acquire().await.unwrap();
    let address = serve(&client, None).await;
    for _ in 0..10 {
        let busy = status_of(async || upload(address, "/busy", UPLOAD).await).await;
        assert_eq!(busy, "HTTP/1.1 409");
        let large = status_of(async || upload(address, "/large", UPLOAD).await).await;
        assert_eq!(large, "HTTP/1.1 413");
    }
}

/// What the reading is for.
#[tokio::test]
async fn without_it_the_connection_breaks_under_the_client() {
    let client = Client::in_memory();
    let _held = client.lock("/busy").acquire().await.unwrap();
    let address = serve(&client, Some(0)).await;
    let mut broken = 0;
    for _ in 0..10 {
        let upload = tokio::time::timeout(DEADLINE, upload(address, "/busy", UPLOAD));
        broken += usize::from(upload.await.expect("hung").is_err());
    }
    assert!(broken > 0, "all clients saw the status");
}

/// A connection on which a client has begun to send, and sends no more.
async fn stopped(address: SocketAddr, path: &str, more: &str) -> (String, Duration) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = head(path, MIB, more);
    connection.write_all(request.as_bytes()).await.unwrap();
    let since = Instant::now();
    let mut answer = vec![0; 12];
    let reading = connection.read_exact(&mut answer);
    let read = tokio::time::timeout(DEADLINE, reading).await;
    read.expect("no answer").unwrap();
    (
        String::from_utf8_lossy(&answer).into_owned(),
        since.elapsed(),
    )
}

#[tokio::test]
async fn client_that_sends_no_more_is_answered_after_a_second() {
    let client = Client::in_memory();
    let _held = client.lock("/busy").acquire().await.unwrap();
    let address = serve(&client, None).await;
    let (answer, after) = stopped(address, "/busy", "").await;
    assert_eq!(answer, "HTTP/1.1 409");
    assert!(after >= SEC, "{after:?}");
}

/// The bound, in a time that no busy machine makes longer.
#[tokio::test(start_paused = true)]
async fn rest_that_does_not_come_is_waited_for_for_a_second_and_no_longer() {
    let client = Client::in_memory();
    let _held = client.lock("/busy").acquire().await.unwrap();
    let endless = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let request = Request::post("/busy").body(endless).unwrap();
    let since = tokio::time::Instant::now();
    let answer = app(&client, None).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(since.elapsed(), SEC);
}

/// Reading would tell it to begin.
#[tokio::test]
async fn client_that_expects_100_continue_gets_the_status_at_once_in_its_place() {
    let client = Client::in_memory();
    let _held = client.lock("/busy").acquire().await.unwrap();
    let address = serve(&client, None).await;
    let (answer, _) = stopped(address, "/busy", "expect: 100-continue\r\n").await;
    assert_eq!(answer, "HTTP/1.1 409");
    let (answer, _) = stopped(address, "/large", "expect: 100-continue\r\n").await;
    assert_eq!(answer, "HTTP/1.1 413");
}

/// The layer has told it to begin by reading the body for the key, which turned out to be too large.
#[tokio::test]
async fn client_that_was_told_to_continue_sees_the_status_after_it_has_sent_all() {
    let client = Client::in_memory();
    let address = serve(&client, None).await;
    let request = "POST /large HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    let piece = [
        format!("{:x}\r\n", 65_000).as_bytes(),
        &[b'x'; 65_000],
        b"\r\n",
    ]
    .concat();
    let upload = async || -> std::io::Result<String> {
        let mut connection = socket().connect(address).await?;
        connection.write_all(request.as_bytes()).await?;
        let mut answer = [0; 25];
        connection.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        for _ in 0..UPLOAD / 65_000 {
            connection.write_all(&piece).await?;
        }
        connection.write_all(b"0\r\n\r\n").await?;
        connection.read_exact(&mut answer[..12]).await?;
        Ok(String::from_utf8_lossy(&answer[..12]).into_owned())
    };
    for _ in 0..10 {
        assert_eq!(status_of(upload).await, "HTTP/1.1 413");
    }
}

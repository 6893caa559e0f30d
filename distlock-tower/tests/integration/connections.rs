//! Holds on real connections, where hyper drives the response: bodies that are read to their end, bodies that are not read,
//! and upgraded connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use distlock::{Client, MemoryServer};
use distlock_test_backends::Disturbed as _;
use distlock_test_backends::faults::{Fault, Faults, Op};
use distlock_tower::{Held, HoldUntil, LockLayer};
use futures_util::stream::{self, StreamExt as _};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{DEADLINE, eventually, freed, http_client};

/// Upgrades, and sends on the upgraded connection whether the lock is held. Keeps the guard if the query is `keep`.
async fn chat(State(client): State<Client>, held: Held, mut request: Request) -> Response {
    let kept = (request.uri().query() == Some("keep")).then(|| held.keep().unwrap());
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut connection = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
        let locked = client.lock(held.key()).is_locked().await.unwrap();
        assert_eq!(locked, held.is_held());
        connection
            .write_all(format!("{locked:>5}").as_bytes())
            .await
            .unwrap();
        // Until the client disconnects.
        let _ended = connection.read_u8().await;
        drop(kept);
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "chat")
        .body(Body::empty())
        .unwrap()
}

/// A body of a known length.
async fn sized() -> &'static str {
    "done"
}

/// A body in pieces.
async fn chunked() -> Body {
    let pieces = ["do", "ne"].map(Ok::<_, Infallible>);
    Body::from_stream(stream::iter(pieces))
}

/// A body in pieces with an announced length. It does not end by itself.
async fn announced() -> ([(HeaderName, &'static str); 1], Body) {
    let pieces = stream::iter(["do", "ne"].map(Ok::<_, Infallible>));
    let body = Body::from_stream(pieces.chain(stream::pending()));
    ([(header::CONTENT_LENGTH, "4")], body)
}

/// A body with trailers at its end.
async fn trailers() -> Body {
    let frames = [
        Frame::data("done".into()),
        Frame::trailers(HeaderMap::new()),
    ];
    Body::new(StreamBody::new(stream::iter(
        frames.map(Ok::<_, Infallible>),
    )))
}

/// A body that ends only with its connection.
async fn endless() -> Body {
    let piece = Bytes::from(vec![b'x'; 100_000]);
    Body::from_stream(stream::repeat_with(move || {
        Ok::<_, Infallible>(piece.clone())
    }))
}

fn layer(client: &Client) -> LockLayer {
    LockLayer::new(client)
        .key_template("<uri.path>")
        .wait(Duration::ZERO)
}

async fn serve(client: &Client, until: HoldUntil) -> SocketAddr {
    serve_with(client, layer(client).hold_until(until)).await
}

async fn serve_with(client: &Client, layer: LockLayer) -> SocketAddr {
    let app = Router::new()
        .route("/chat", get(chat))
        .route("/sized", get(sized))
        .route("/chunked", get(chunked))
        .route("/announced", get(announced))
        .route("/trailers", get(trailers))
        .route("/endless", get(endless))
        .route("/upload", post(upload))
        .route("/empty", get(StatusCode::NO_CONTENT))
        .route_layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.with_state(client.clone());
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    address
}

/// Upgrades, and returns the text that the handler sends then.
async fn upgrade(connection: &mut TcpStream, path: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let mut text = [0; 5];
    connection.read_exact(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[tokio::test]
async fn hold_ends_before_the_upgraded_connection_starts() {
    for until in [HoldUntil::Response, HoldUntil::Body] {
        let client = Client::in_memory();
        let address = serve(&client, until).await;
        let mut connection = TcpStream::connect(address).await.unwrap();
        assert_eq!(
            upgrade(&mut connection, "/chat").await,
            "false",
            "{until:?}"
        );
    }
}

#[tokio::test]
async fn guard_moved_to_an_upgraded_connection_holds_until_disconnect() {
    let client = Client::in_memory();
    let address = serve(&client, HoldUntil::Response).await;
    let mut connection = TcpStream::connect(address).await.unwrap();
    assert_eq!(upgrade(&mut connection, "/chat?keep").await, "true");
    assert!(client.lock("/chat").is_locked().await.unwrap());
    drop(connection);
    freed(&client, "/chat").await;
}

/// The layer does not wait, so a request that finds its lock held is answered with 409.
#[tokio::test]
async fn client_that_has_read_a_response_finds_the_lock_free() {
    for until in [HoldUntil::Response, HoldUntil::Body] {
        // With this delay, a release in the background would come too late.
        let faults = Faults::new();
        faults.always(Op::Release, Fault::Delay(Duration::from_millis(20)));
        let client = Client::builder().faults(&faults);
        let client = client.in_memory(&MemoryServer::new()).unwrap();
        let base = format!("http://{}", serve(&client, until).await);
        let http = http_client();
        for path in ["sized", "chunked", "announced", "trailers"] {
            for _ in 0..10 {
                let response = http.get(format!("{base}/{path}")).send().await.unwrap();
                assert_eq!(response.status(), 200, "{until:?} {path}");
                assert_eq!(response.text().await.unwrap(), "done");
            }
        }
    }
}

#[tokio::test]
async fn response_without_a_body_does_not_keep_the_hold() {
    let client = Client::in_memory();
    let base = format!("http://{}", serve(&client, HoldUntil::Body).await);
    let http = http_client();
    for _ in 0..20 {
        let empty = http.get(format!("{base}/empty")).send().await.unwrap();
        assert_eq!(empty.status(), 204);
    }
    // hyper drops these bodies unread, some time after it has sent the head.
    for path in ["/sized", "/chunked"] {
        let head = http.head(format!("{base}{path}")).send().await.unwrap();
        assert_eq!(head.status(), 200);
        freed(&client, path).await;
    }
}

/// Reads the request's body.
async fn upload(body: Bytes) -> String {
    format!("{} bytes", body.len())
}

#[tokio::test]
async fn client_that_stops_sending_is_408_and_disconnected_and_the_lock_is_free() {
    let client = Client::in_memory();
    let layer = layer(&client).request_body_timeout(Duration::from_secs(1));
    let address = serve_with(&client, layer).await;
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nx";
    connection.write_all(request.as_bytes()).await.unwrap();
    let lock = client.lock("/upload");
    eventually("locked", async || lock.is_locked().await.unwrap()).await;
    // The client keeps its side open and sends nothing.
    let mut answer = String::new();
    let reading = connection.read_to_string(&mut answer);
    tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("the connection did not end")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("urn:distlock:body-timeout"), "{answer}");
    let http = http_client();
    let next = http
        .post(format!("http://{address}/upload"))
        .body("0123456789");
    let next = next.send().await.unwrap();
    assert_eq!(next.text().await.unwrap(), "10 bytes");
}

/// No socket buffers as many bytes.
const MORE_THAN_BUFFERED: u64 = 256 * 1024 * 1024;

#[tokio::test]
async fn client_that_stops_reading_does_not_hold_beyond_max_hold() {
    let client = Client::in_memory();
    let layer = layer(&client).hold_until(HoldUntil::Body);
    let layer = layer.max_hold(Duration::from_secs(1));
    let mut connection = TcpStream::connect(serve_with(&client, layer).await)
        .await
        .unwrap();
    let request = "GET /endless HTTP/1.1\r\nhost: a\r\n\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    // The endless body holds the lock from here on.
    let mut start = [0; 12];
    connection.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    // The test reads no more, so the server soon cannot write, and no longer polls the body.
    freed(&client, "/endless").await;
    // The body was cut: the connection ends, and the last chunk is missing.
    let mut rest = Vec::new();
    let mut connection = connection.take(MORE_THAN_BUFFERED);
    let reading = connection.read_to_end(&mut rest);
    let _reset_or_end = tokio::time::timeout(DEADLINE, reading).await.unwrap();
    assert!(
        (rest.len() as u64) < MORE_THAN_BUFFERED,
        "the body did not end"
    );
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

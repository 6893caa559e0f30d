//! Connections that are upgraded, as WebSockets are: the hold ends before, unless its guard is taken along.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use distlock::Client;
use distlock_tower::{Held, HoldUntil, LockLayer};
use support::freed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Says on the upgraded connection whether the lock is held, and takes its guard along where the query says so.
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
        // Until the peer hangs up.
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

async fn serve(client: &Client, until: HoldUntil) -> TcpStream {
    let layer = LockLayer::new(client)
        .key_template("<uri.path>")
        .hold_until(until);
    let app = Router::new().route("/chat", get(chat).route_layer(layer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.with_state(client.clone());
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    TcpStream::connect(address).await.unwrap()
}

/// Upgrades, and answers what is said then.
async fn upgrade(connection: &mut TcpStream, path: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let mut said = [0; 5];
    connection.read_exact(&mut said).await.unwrap();
    String::from_utf8_lossy(&said).trim().to_owned()
}

#[tokio::test]
async fn hold_ends_before_the_upgraded_connection_begins() {
    for until in [HoldUntil::Response, HoldUntil::Body] {
        let client = Client::in_memory();
        let mut connection = serve(&client, until).await;
        assert_eq!(
            upgrade(&mut connection, "/chat").await,
            "false",
            "{until:?}"
        );
    }
}

#[tokio::test]
async fn guard_that_is_taken_along_holds_until_the_peer_hangs_up() {
    let client = Client::in_memory();
    let mut connection = serve(&client, HoldUntil::Response).await;
    assert_eq!(upgrade(&mut connection, "/chat?keep").await, "true");
    assert!(client.lock("/chat").is_locked().await.unwrap());
    drop(connection);
    freed(&client, "/chat").await;
}

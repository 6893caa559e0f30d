//! Routers on a real port: concurrent requests, requests right after each other, and clients that disconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use distlock::Client;
use distlock::test_util::sizes;
use distlock_tower::LockLayer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{held_key, orders};
use crate::support::{SEC, eventually, freed, http_client, replicas};

/// Serves a router on a free port until the test ends.
async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

#[derive(Default)]
struct Inside {
    now: [AtomicUsize; 2],
    overlaps: AtomicUsize,
    ran: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_of_two_replicas_never_overlap_in_the_handler() {
    const REQUESTS: usize = 60;
    let (one, two) = replicas();
    let inside = Arc::new(Inside::default());
    async fn pay(State(inside): State<Arc<Inside>>, Path(id): Path<usize>) {
        if inside.now[id].fetch_add(1, Ordering::SeqCst) > 0 {
            inside.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        // Gives other requests a chance to enter. No condition is waited for here.
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        inside.now[id].fetch_sub(1, Ordering::SeqCst);
        inside.ran.fetch_add(1, Ordering::SeqCst);
    }
    let mut bases = Vec::new();
    for client in [&one, &two] {
        let route = Router::new().route("/orders/{id}/pay", post(pay));
        let layer = orders(client).wait(60 * SEC);
        bases.push(serve(route.route_layer(layer).with_state(inside.clone())).await);
    }
    let http = http_client();
    let requests = (0..REQUESTS).map(|n| {
        let request = http.post(format!("{}/orders/{}/pay", bases[n % 2], n / 2 % 2));
        tokio::spawn(request.send())
    });
    let requests: Vec<_> = requests.collect();
    for response in requests {
        assert_eq!(response.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(inside.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(inside.ran.load(Ordering::SeqCst), REQUESTS);
    for key in ["order:0", "order:1"] {
        assert!(!one.lock(key).is_locked().await.unwrap());
    }
}

#[tokio::test]
async fn next_request_of_a_client_finds_the_lock_free() {
    let client = Client::in_memory();
    let base = serve(
        Router::new()
            .route("/orders/{id}", post(held_key))
            .route_layer(orders(&client).wait(Duration::ZERO)),
    )
    .await;
    let http = http_client();
    for _ in 0..50 {
        let response = http.post(format!("{base}/orders/7")).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn client_disconnect_drops_the_handler_and_frees_the_lock() {
    let client = Client::in_memory();
    let route = Router::new().route(
        "/orders/{id}",
        post(async || std::future::pending::<()>().await),
    );
    let base = serve(route.route_layer(orders(&client))).await;
    let request = tokio::spawn(http_client().post(format!("{base}/orders/7")).send());
    let lock = client.lock("order:7");
    eventually("locked", async || lock.is_locked().await.unwrap()).await;
    request.abort();
    assert!(request.await.is_err());
    freed(&client, "order:7").await;
}

/// Sends a request by hand. The connection is open as long as the value lives.
async fn open(base: &str, path: &str, rest: &str) -> TcpStream {
    let address = base.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{rest}");
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// The server reads no connection whose request has an unread body. The crate's docs say so in "When the hold ends".
#[tokio::test]
async fn client_that_leaves_while_its_request_waits_gives_up_its_place_unless_its_body_is_unread() {
    const SIZED: &str = "content-length: 1\r\n\r\nx";
    const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    async fn count(State(handled): State<Arc<AtomicUsize>>) {
        handled.fetch_add(1, Ordering::SeqCst);
    }
    let client = Client::in_memory();
    let handled = Arc::new(AtomicUsize::new(0));
    let by_path = Router::new().route("/orders/{id}", post(count));
    let by_body = Router::new().route("/orders", post(count));
    let key_from_body = LockLayer::new(&client).key_from_body(9, |_, _| "order:7");
    let app = by_path
        .route_layer(orders(&client).wait(600 * SEC))
        .merge(by_body.route_layer(key_from_body.wait(600 * SEC)));
    let base = serve(app.with_state(handled.clone())).await;

    let other = client.lock("order:7").acquire().await.unwrap();
    let clients = [
        open(&base, "/orders/7", SIZED).await,
        open(&base, "/orders", CHUNKED).await,
        open(&base, "/orders/7", CHUNKED).await,
    ];
    let waiting = |wanted| {
        let client = client.clone();
        async move || sizes(&client).waiters == wanted
    };
    eventually("all requests wait", waiting(3)).await;
    drop(clients);
    eventually("two of the three requests are given up", waiting(1)).await;
    other.release().await.unwrap();
    let is_handled = async || handled.load(Ordering::SeqCst) == 1;
    eventually("the third one is handled", is_handled).await;
    freed(&client, "order:7").await;
}

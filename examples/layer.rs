//! `LockLayer` on axum routes of two replicas: one request per order at a time, and a 409 response for a second export.
//!
//! The handlers contain no locking code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use distlock::Client;
use distlock_examples::{Failure, LockServer, check, http_client};
use distlock_tower::{Held, LockLayer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many payments were counted.
type Paid = Arc<AtomicU64>;

/// Reads, sleeps and writes. The layer lets in one request per order at a time, so no payment is lost. The lock does not remember
/// anything: each click pays again, because this handler does not look whether the order is paid. A real one would.
async fn pay(State(paid): State<Paid>, Path(id): Path<u64>, held: Held) -> Json<Value> {
    let before = paid.load(Ordering::SeqCst);
    sleep(Duration::from_millis(20)).await;
    paid.store(before + 1, Ordering::SeqCst);
    Json(json!({ "order": id, "payments": before + 1, "lock": held.key() }))
}

/// Takes long. A second request for the same tenant is answered with 409 while it runs.
async fn export(Path(tenant): Path<String>) -> String {
    sleep(Duration::from_millis(300)).await;
    format!("the data of {tenant}\n")
}

fn router(locks: &Client, paid: Paid) -> Router {
    let by_order = LockLayer::new(locks.clone())
        .key(|Path(id): Path<u64>| format!("order:{id}"))
        .wait(Duration::from_secs(10));
    let by_tenant = LockLayer::new(locks.clone())
        .key_template("export:<path.tenant>")
        .wait(Duration::ZERO);
    Router::new()
        .route("/orders/{id}/pay", post(pay).route_layer(by_order))
        .route("/export/{tenant}", get(export).route_layer(by_tenant))
        .with_state(paid)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let paid = Paid::default();
    let (mut replicas, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let locks = server.client().await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        replicas.push(listener.local_addr()?);
        tokio::spawn(axum::serve(listener, router(&locks, Arc::clone(&paid))).into_future());
        clients.push(locks);
    }

    let http = http_client()?;
    let mut clicks = JoinSet::new();
    for click in 0..20 {
        let url = format!("http://{}/orders/42/pay", replicas[click % 2]);
        clicks.spawn(http.post(url).send());
    }
    while let Some(click) = clicks.join_next().await {
        click??.error_for_status()?;
    }
    println!(
        "20 clicks on the same button, sent to two replicas: {} payments were counted",
        paid.load(Ordering::SeqCst)
    );
    check(
        paid.load(Ordering::SeqCst) == 20,
        "each of the 20 payments is counted",
    )?;

    let export = |replica: usize| {
        http.get(format!("http://{}/export/acme", replicas[replica]))
            .send()
    };
    let (first, second) = tokio::join!(export(0), export(1));
    for answer in [first?, second?] {
        println!("{} {}", answer.status(), answer.text().await?.trim_end());
    }
    for locks in clients {
        locks.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}

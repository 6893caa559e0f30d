//! A graceful shutdown: the server finishes its requests and leaves no lock behind.
//!
//! A guard that is dropped is released in the background. If the process ended before these releases are sent, others would
//! have to wait for the leases to end. `Client::close` waits until they are confirmed.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use distlock_examples::{Failure, LockServer, check, http_client};
use distlock_tower::LockLayer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// How long `close` waits for background releases.
const FLUSH: Duration = Duration::from_secs(5);

async fn pay(Path(id): Path<u64>) -> String {
    sleep(Duration::from_millis(300)).await;
    format!("order {id} is paid")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let (locks, others) = (server.client().await?, server.client().await?);
    let layer = LockLayer::new(locks.clone()).key(|Path(id): Path<u64>| format!("order:{id}"));
    let app = Router::new().route("/orders/{id}/pay", post(pay).route_layer(layer));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/orders/42/pay", listener.local_addr()?);
    // A real service would wait for Ctrl-C and SIGTERM instead: see `order_service`.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app)
        .with_graceful_shutdown(async { drop(stopped.await) })
        .into_future();
    let serving = tokio::spawn(serving);

    let request = tokio::spawn(http_client()?.post(url).send());
    while !others.lock("order:42").is_locked().await? {
        sleep(Duration::from_millis(5)).await;
    }
    println!("a request is running and holds the lock of its order");
    // Another guard is dropped, so its release happens in the background.
    drop(locks.lock("cache").acquire().await?);

    println!("shutting down");
    drop(stop);
    println!("{}", request.await??.error_for_status()?.text().await?);
    serving.await??;
    // Last, wait for the releases that the handlers left to the background.
    locks.close(FLUSH).await?;

    for key in ["order:42", "cache"] {
        check(
            !others.lock(key).is_locked().await?,
            "no lock is left behind",
        )?;
    }
    println!("no lock is left behind");
    others.close(FLUSH).await?;
    Ok(())
}

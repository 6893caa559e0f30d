//! A graceful shutdown: the server finishes its requests, cuts off those that hang, and leaves no lock behind.
//!
//! A guard that is dropped is released in the background. If the process ended before these releases are sent, others would
//! have to wait for the leases to end. `Client::close` waits until they are confirmed.
//!
//! A request that hangs keeps its guard, and `close` would wait for it in vain. When the time for requests is over, the middleware
//! `until_cut` drops the handlers that still run, which ends their guards, and answers with 503.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock_examples::{Failure, LockServer, check, http_client};
use distlock_tower::LockLayer;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// How long requests may take after the program was told to end. A real service gives them more time.
const GRACE: Duration = Duration::from_secs(1);

/// How long `close` waits for background releases.
const FLUSH: Duration = Duration::from_secs(5);

/// The order whose payment hangs.
const STUCK: u64 = 43;

async fn pay(Path(id): Path<u64>) -> String {
    if id == STUCK {
        std::future::pending::<()>().await;
    }
    sleep(Duration::from_millis(300)).await;
    format!("order {id} is paid")
}

/// Drops a request that still runs when the program cuts requests off, with its handler and its lock.
async fn until_cut(
    State(mut cut): State<watch::Receiver<bool>>,
    request: Request,
    next: Next,
) -> Response {
    tokio::select! {
        response = next.run(request) => response,
        _ = cut.wait_for(|cut| *cut) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LockServer::from_args();
    let (locks, others) = (server.client().await?, server.client().await?);
    let layer = LockLayer::new(locks.clone()).key(|Path(id): Path<u64>| format!("order:{id}"));
    let (cut, is_cut) = watch::channel(false);
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay).route_layer(layer))
        // Outside of the lock, so that it drops the lock as well.
        .layer(from_fn_with_state(is_cut, until_cut));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let orders = format!("http://{}/orders", listener.local_addr()?);
    // A real service would wait for Ctrl-C and SIGTERM instead: see `order_service`.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app)
        .with_graceful_shutdown(async { drop(stopped.await) })
        .into_future();
    let serving = tokio::spawn(serving);

    let http = http_client()?;
    let pays = |id| tokio::spawn(http.post(format!("{orders}/{id}/pay")).send());
    let (request, hangs) = (pays(42), pays(STUCK));
    for key in ["order:42", "order:43"] {
        while !others.lock(key).is_locked().await? {
            sleep(Duration::from_millis(5)).await;
        }
    }
    println!("two requests are running, and hold the locks of their orders");
    // Another guard is dropped, so its release happens in the background.
    drop(locks.lock("cache").acquire().await?);

    println!("shutting down");
    drop(stop);
    println!("{}", request.await??.error_for_status()?.text().await?);
    match timeout(GRACE, serving).await {
        Ok(served) => served??,
        Err(_) => {
            println!("cutting off the requests that still run");
            cut.send_replace(true);
        }
    }
    let status = hangs.await??.status();
    check(
        status == StatusCode::SERVICE_UNAVAILABLE,
        "the request that hangs is answered",
    )?;
    // Last, wait for the releases that the handlers left to the background.
    locks.close(FLUSH).await?;

    for key in ["order:42", "order:43", "cache"] {
        check(
            !others.lock(key).is_locked().await?,
            "no lock is left behind",
        )?;
    }
    println!("no lock is left behind");
    others.close(FLUSH).await?;
    Ok(())
}

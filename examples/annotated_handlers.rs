//! `#[distributed_lock]` on functions that axum handlers call: a lock that is busy is answered as `LockLayer` answers it.
//!
//! The functions know nothing of HTTP. `Rejection` turns the error of a lock into 409 or 503 with `Retry-After` and
//! `application/problem+json`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock::{Client, Error, distributed_lock};
use distlock_examples::{Failure, LockServer, check, http_client};
use distlock_tower::Rejection;
use tokio::net::TcpListener;

/// The service behind the routes.
struct Shop {
    locks: Client,
}

/// Why a payment failed.
enum PayError {
    Locked(Error),
    UnknownOrder,
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Locked(error)
    }
}

/// The answer of the layer for the lock's errors, and an own one for all others. `before_work` says to the client that nothing was
/// done: `pay` has no lock but that of its attribute.
impl IntoResponse for PayError {
    fn into_response(self) -> Response {
        match self {
            Self::Locked(error) => Rejection::before_work(error).into_response(),
            Self::UnknownOrder => (StatusCode::NOT_FOUND, "no such order").into_response(),
        }
    }
}

impl Shop {
    #[distributed_lock(key = "order:<id>", client = self.locks, wait = 0)]
    async fn pay(&self, id: u64) -> Result<String, PayError> {
        if id == 0 {
            return Err(PayError::UnknownOrder);
        }
        Ok(format!("order {id} is paid"))
    }

    #[distributed_lock(key = "order:<id>", client = self.locks, wait = 0)]
    async fn cancel(&self, id: u64) -> Result<String, Error> {
        Ok(format!("order {id} is cancelled"))
    }
}

/// The error of the service function is the answer.
async fn pay(State(shop): State<Arc<Shop>>, Path(id): Path<u64>) -> Result<String, PayError> {
    shop.pay(id).await
}

/// A function with no other errors needs no error type of its own.
async fn cancel(State(shop): State<Arc<Shop>>, Path(id): Path<u64>) -> Result<String, Rejection> {
    shop.cancel(id).await.map_err(Rejection::before_work)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = LockServer::from_args().client().await?;
    let shop = Arc::new(Shop {
        locks: locks.clone(),
    });
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/cancel", post(cancel))
        .with_state(shop);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, app).into_future());

    let http = http_client()?;
    let send = |path: &str| http.post(format!("{base}{path}")).send();
    // Another replica works on the order.
    let other = locks.lock("order:42").acquire().await?;
    let mut refused = Vec::new();
    for path in ["/orders/42/pay", "/orders/42/cancel"] {
        let answer = send(path).await?;
        let retry_after = answer.headers().get("retry-after").is_some();
        refused.push((answer.status().as_u16(), retry_after));
        println!("{path}: {} {}", answer.status(), answer.text().await?);
    }
    check(
        refused == [(409, true); 2],
        "requests for a locked order are answered with 409 and Retry-After",
    )?;
    other.release().await?;
    for path in ["/orders/42/pay", "/orders/42/cancel", "/orders/0/pay"] {
        let answer = send(path).await?;
        println!("{path}: {} {}", answer.status(), answer.text().await?);
    }
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

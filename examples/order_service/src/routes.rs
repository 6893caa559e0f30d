//! The routes. The layer lets in one request per order at a time.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use distlock_tower::{CompletingLayer, LockLayer, Rejection};
use serde::Deserialize;
use serde_json::json;

use crate::shop::{Order, Shop, ShopError};

/// How long the second click of a double click waits for the first one.
const WAIT: Duration = Duration::from_secs(20);

pub(crate) fn router(shop: &Shop) -> Router {
    let one_at_a_time = |route: MethodRouter<Shop>| {
        if shop.guarded {
            route.route_layer(by_order(shop))
        } else {
            route
        }
    };
    Router::new()
        .route("/orders/{id}/items/{item}", one_at_a_time(post(order)))
        .route("/orders/{id}/pay", one_at_a_time(post(pay)))
        .route("/stock/{item}", get(stock))
        .with_state(shop.clone())
}

/// The path parameter of both order routes. It is parsed as a number, so `/orders/042` locks the same key as `/orders/42`.
#[derive(Deserialize)]
struct OrderPath {
    id: u64,
}

/// A sale goes on if its customer goes away in the middle. Otherwise an item could be taken off the stock without an order, and be taken
/// again when the customer repeats the request.
fn by_order(shop: &Shop) -> CompletingLayer {
    LockLayer::new(shop.locks.clone())
        .key(|Path(order): Path<OrderPath>| format!("order:{}", order.id))
        .wait(WAIT)
        .run_to_completion()
}

async fn order(
    State(shop): State<Shop>,
    Path((id, item)): Path<(u64, String)>,
) -> Result<Json<Order>, ShopError> {
    shop.order(id, &item).await.map(Json)
}

async fn pay(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<Json<Order>, ShopError> {
    shop.pay(id).await.map(Json)
}

async fn stock(State(shop): State<Shop>, Path(item): Path<String>) -> Result<String, ShopError> {
    shop.left(&item).await.map(|left| format!("{left}\n"))
}

/// Texts of a lock or of the stock have keys and owners in them: they are for the log, and not for customers.
impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::SoldOut => StatusCode::GONE,
            Self::NoSuchItem => StatusCode::NOT_FOUND,
            Self::NothingToPay => StatusCode::PAYMENT_REQUIRED,
            // Only the attribute of `Shop::place` makes it, so nothing was done, unless the locks were lost.
            Self::Lock(error) => return Rejection::before_work(error).into_response(),
            // It is not known how far the sale came.
            Self::Stock(ref failure) => {
                eprintln!("{self}: {failure}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        (status, Json(json!({ "error": self.to_string() }))).into_response()
    }
}

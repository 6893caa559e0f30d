//! The customers: each orders one item over HTTP, with a double click, and pays for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rand::RngExt;
use tokio::task::JoinSet;

use crate::Failure;
use crate::http::Http;
use crate::stock::OPENING;

/// The answers that the customers received.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Customers who got an item and paid for it.
    pub(crate) served: u64,
    /// Customers who found the item sold out.
    pub(crate) refused: u64,
    /// Requests that did not get a lock in time (409).
    pub(crate) busy: u64,
    /// Requests with any other answer.
    pub(crate) failed: u64,
    /// The longest that a customer waited for an answer.
    pub(crate) longest: Duration,
    /// How long it took to serve all customers.
    pub(crate) took: Duration,
}

/// The answers that one customer received.
struct Visit {
    order: StatusCode,
    second_click: StatusCode,
    pay: Option<StatusCode>,
    longest: Duration,
}

pub(crate) async fn customers(shop: SocketAddr, customers: u64) -> Result<Seen, Failure> {
    let http = Arc::new(Http::new(shop));
    let start = Instant::now();
    let mut visits = JoinSet::new();
    for id in 0..customers {
        visits.spawn(visit(Arc::clone(&http), id));
    }
    let mut seen = Seen::default();
    while let Some(visit) = visits.join_next().await {
        seen.count(&visit??);
    }
    seen.took = start.elapsed();
    Ok(seen)
}

async fn visit(http: Arc<Http>, id: u64) -> Result<Visit, Failure> {
    let (item, _) = OPENING[rand::rng().random_range(0..OPENING.len())];
    let order = format!("/orders/{id}/items/{item}");
    let (first, second) = tokio::try_join!(post(&http, &order), post(&http, &order))?;
    let pay = if first.0.is_success() {
        Some(post(&http, &format!("/orders/{id}/pay")).await?)
    } else {
        None
    };
    Ok(Visit {
        order: first.0,
        second_click: second.0,
        pay: pay.map(|(status, _)| status),
        longest: first
            .1
            .max(second.1)
            .max(pay.map_or(Duration::ZERO, |(_, time)| time)),
    })
}

async fn post(http: &Http, path: &str) -> Result<(StatusCode, Duration), Failure> {
    let start = Instant::now();
    let status = http.post(path).await?;
    Ok((status, start.elapsed()))
}

impl Seen {
    fn count(&mut self, visit: &Visit) {
        self.longest = self.longest.max(visit.longest);
        for status in [Some(visit.order), Some(visit.second_click), visit.pay]
            .into_iter()
            .flatten()
        {
            self.busy += u64::from(status == StatusCode::CONFLICT);
            let known =
                status.is_success() || matches!(status, StatusCode::CONFLICT | StatusCode::GONE);
            self.failed += u64::from(!known);
        }
        self.served += u64::from(visit.pay.is_some_and(|pay| pay.is_success()));
        self.refused += u64::from(visit.order == StatusCode::GONE);
    }
}

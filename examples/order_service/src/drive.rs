//! The customers: each orders one item over HTTP, with a double click, and pays for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
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
    /// Requests with any other answer, by its text.
    pub(crate) failed: BTreeMap<String, u64>,
    /// The longest that a customer waited for an answer.
    pub(crate) longest: Duration,
    /// How long it took to serve all customers.
    pub(crate) took: Duration,
}

/// The answers that one customer received.
struct Visit {
    order: Answer,
    second_click: Answer,
    pay: Option<Answer>,
}

struct Answer {
    status: StatusCode,
    body: Bytes,
    took: Duration,
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
    let (item, _) = OPENING[fastrand::usize(0..OPENING.len())];
    let order = format!("/orders/{id}/items/{item}");
    let (first, second) = tokio::try_join!(post(&http, &order), post(&http, &order))?;
    let pay = if first.status.is_success() {
        Some(post(&http, &format!("/orders/{id}/pay")).await?)
    } else {
        None
    };
    Ok(Visit {
        order: first,
        second_click: second,
        pay,
    })
}

async fn post(http: &Http, path: &str) -> Result<Answer, Failure> {
    let start = Instant::now();
    let (status, body) = http.post(path).await?;
    let took = start.elapsed();
    Ok(Answer { status, body, took })
}

impl Seen {
    fn count(&mut self, visit: &Visit) {
        let answers = [
            Some(&visit.order),
            Some(&visit.second_click),
            visit.pay.as_ref(),
        ];
        for answer in answers.into_iter().flatten() {
            let status = answer.status;
            self.longest = self.longest.max(answer.took);
            self.busy += u64::from(status == StatusCode::CONFLICT);
            if !status.is_success() && !matches!(status, StatusCode::CONFLICT | StatusCode::GONE) {
                *self.failed.entry(answer.reason()).or_default() += 1;
            }
        }
        let is_paid = |pay: &Answer| pay.status.is_success();
        self.served += u64::from(visit.pay.as_ref().is_some_and(is_paid));
        self.refused += u64::from(visit.order.status == StatusCode::GONE);
    }
}

impl Answer {
    /// Why the request failed: the shop's own words, or what the layer has answered.
    fn reason(&self) -> String {
        let json: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let word = |name| json.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let reason = word("error")
            .or_else(|| word("detail"))
            .or_else(|| word("title"));
        reason.unwrap_or_else(|| self.status.to_string())
    }
}

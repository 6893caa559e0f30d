//! Shared by the tests: clients of one server, parsed answers, and waiting for a condition.

use std::time::Duration;

use bytes::Bytes;
use distlock::{Client, MemoryServer};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;

pub(crate) const SEC: Duration = Duration::from_secs(1);

/// Two clients of one server, like two replicas of a program.
pub(crate) fn replicas() -> (Client, Client) {
    let server = MemoryServer::new();
    let client = || Client::builder().in_memory(&server).unwrap();
    (client(), client())
}

/// A client of HTTP. Proxies that the environment names do not reach the servers of these tests.
pub(crate) fn http_client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    builder.build().expect("a client without TLS")
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<u64>,
    pub(crate) problem: Option<serde_json::Value>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let header = |name| head.headers.get(name).map(|value| value.to_str().unwrap());
        let is_problem = header(CONTENT_TYPE) == Some("application/problem+json");
        Self {
            status: head.status,
            retry_after: header(RETRY_AFTER).map(|seconds| seconds.parse().unwrap()),
            problem: is_problem.then(|| serde_json::from_str(&text).unwrap()),
            text,
        }
    }

    /// Checks that this is the problem `name` with this status, and that its body contains no key of the tests.
    #[track_caller]
    pub(crate) fn is_problem(&self, name: &str, status: u16, retryable: bool) {
        let problem = self.problem.as_ref().expect("no problem+json");
        assert_eq!(problem["type"], format!("urn:distlock:{name}"), "{self:?}");
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert_eq!(problem["retryable"], retryable, "{self:?}");
        for member in ["title", "detail"] {
            assert!(
                problem[member]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            );
        }
        let after = problem.get("retry_after");
        assert_eq!(after.map(|after| after.as_u64().unwrap()), self.retry_after);
        let members = 5 + usize::from(after.is_some());
        assert_eq!(problem.as_object().unwrap().len(), members, "{self:?}");
        for secret in ["secret", "order", "k1"] {
            assert!(!self.text.contains(secret), "{self:?}");
        }
    }
}

/// How long the tests wait for a condition: long enough for a busy machine, and shorter than the default lease of 30 s, so
/// that a lock that is freed by its lease does not count as released.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a condition; fails at the deadline.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {DEADLINE:?}: {what}");
}

/// Waits until a key is free.
pub(crate) async fn freed(client: &Client, key: &str) {
    eventually("the key is free", async || {
        !client.lock(key).is_locked().await.unwrap()
    })
    .await;
}

//! Answers in place of the handler's: problem details (RFC 9457) that name neither key nor holder.
//!
//! Keys and holders may name tenants, and the reader of an answer may be anyone: they go to the log, here.

use std::time::Duration;

use bytes::Bytes;
use distlock::{Blocker, Error};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

use crate::BoxError;
use crate::key::BadKeys;

pub(crate) type Answer = Response<Full<Bytes>>;

/// Bounds of `Retry-After` in seconds. What is left of a lease that is being renewed says nothing about its end.
const RETRY_AFTER_BUSY: (u64, u64) = (1, 10);

/// `Retry-After` in seconds where nobody answered: a server that is down or failing over needs some.
const RETRY_AFTER_UNAVAILABLE: u64 = 5;

/// What one kind of answer always says. The texts are written into JSON as they are.
struct Problem {
    name: &'static str,
    status: StatusCode,
    title: &'static str,
    detail: &'static str,
    retryable: bool,
}

const BUSY: Problem = Problem {
    name: "busy",
    status: StatusCode::CONFLICT,
    title: "Locked by another request",
    detail: "Another request is at work on the same resource. Nothing was done; try again later.",
    retryable: true,
};

const UNAVAILABLE: Problem = Problem {
    name: "unavailable",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Lock service unavailable",
    detail: "The lock that this request needs could not be acquired. Nothing was done; try again later.",
    retryable: true,
};

const LOST: Problem = Problem {
    name: "lost",
    status: StatusCode::INTERNAL_SERVER_ERROR,
    title: "Lock lost",
    detail: "The lock was lost while the request was being handled. What it did, if anything, is unknown.",
    retryable: false,
};

const KEY: Problem = Problem {
    name: "key",
    status: StatusCode::BAD_REQUEST,
    title: "Invalid lock key",
    detail: "The request does not say, in a form that can be used, which resource it is about.",
    retryable: false,
};

const CONFIG: Problem = Problem {
    name: "config",
    status: StatusCode::INTERNAL_SERVER_ERROR,
    title: "Lock misconfigured",
    detail: "The server's locks are not set up as this request needs them.",
    retryable: false,
};

impl Problem {
    fn answer(&self) -> Answer {
        self.answer_with(self.detail)
    }

    fn answer_with(&self, detail: &str) -> Answer {
        let Self {
            name,
            title,
            retryable,
            ..
        } = self;
        let status = self.status.as_u16();
        let body = format!(
            r#"{{"type":"urn:distlock:{name}","title":"{title}","status":{status},"detail":"{detail}","retryable":{retryable}}}"#
        );
        let mut answer = Response::new(Full::from(body));
        *answer.status_mut() = self.status;
        let problem_json = HeaderValue::from_static("application/problem+json");
        answer.headers_mut().insert(CONTENT_TYPE, problem_json);
        answer
    }

    fn answer_after(&self, seconds: u64) -> Answer {
        let mut answer = self.answer();
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        answer
    }
}

/// Logs why a request has no lock, or no longer, and answers it.
pub(crate) fn refused(error: &Error) -> Answer {
    match error {
        Error::Timeout { blocker, .. } => {
            tracing::debug!(%error, "request refused: busy");
            BUSY.answer_after(retry_after(*blocker))
        }
        Error::Unavailable { .. } => {
            tracing::warn!(%error, "request refused: no lock to be had");
            UNAVAILABLE.answer_after(RETRY_AFTER_UNAVAILABLE)
        }
        Error::Lost { .. } => {
            tracing::error!(%error, "lock lost under a request");
            LOST.answer()
        }
        Error::InvalidKey { .. } => {
            tracing::debug!(%error, "request refused: its key cannot name a lock");
            KEY.answer()
        }
        _ => {
            tracing::error!(%error, "request refused: locks are not set up right");
            CONFIG.answer()
        }
    }
}

fn retry_after(blocker: Blocker) -> u64 {
    let (least, most) = RETRY_AFTER_BUSY;
    match blocker {
        Blocker::Owner(Some(left)) => ceil_secs(left).clamp(least, most),
        Blocker::Owner(None) => most,
        _ => least,
    }
}

fn ceil_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Logs why the keys of a request cannot be locked, and answers it.
pub(crate) fn bad_keys(bad: &BadKeys) -> Answer {
    tracing::debug!(reason = %bad, "request refused");
    KEY.answer()
}

/// Logs a release that the handler's own outcome was passed on after.
pub(crate) fn release_failed(error: &Error) {
    tracing::warn!(%error, "the handler has ended and its lock was not released as it should");
}

/// The answer to a use of the layer that cannot work; `detail` needs no escaping in JSON.
#[cfg(feature = "axum")]
pub(crate) fn misused(detail: &str) -> Answer {
    tracing::error!("{detail}");
    CONFIG.answer_with(detail)
}

/// The answer of a key function or of an extractor, read to its end.
pub(crate) async fn collected(answer: Response<UnsyncBoxBody<Bytes, BoxError>>) -> Answer {
    let (head, body) = answer.into_parts();
    tracing::debug!(status = %head.status, "request answered in place of its key");
    match body.collect().await {
        Ok(body) => Response::from_parts(head, Full::from(body.to_bytes())),
        Err(error) => {
            tracing::error!(%error, "the answer of a key function has a body that fails");
            CONFIG.answer()
        }
    }
}

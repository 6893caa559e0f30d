//! Answers in place of the handler's response, and their log lines.
//!
//! Keys and holders may contain the names of tenants, and any client can read an answer. They are logged here, and the
//! layer's own answers never contain them.

mod answer;
mod grpc;
mod info;
mod pace;
mod problem;
mod reason;
mod rejection;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use distlock::Error;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

pub(crate) use self::grpc::is_grpc;
pub use self::info::LockInfo;
pub(crate) use self::pace::{LastHolds, Pace};
pub use self::reason::Reason;
pub use self::rejection::Rejection;
use crate::error::BoxError;

/// A complete answer, with its body boxed.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

pub(crate) fn boxed<B>(answer: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    answer.map(|body| UnsyncBoxBody::new(body.map_err(Into::into)))
}

/// The return type of a function for [`LockLayer::on_reject`](crate::LockLayer::on_reject).
///
/// With the feature `axum` it is implemented for all types that implement `IntoResponse`. Without it, it is implemented
/// for `http::Response<B>` where `B` is a body of `Bytes`. This trait is not meant to be implemented in other crates.
///
/// # Examples
/// See [`LockLayer::on_reject`](crate::LockLayer::on_reject).
pub trait IntoAnswer {
    /// Converts the value into a response with a boxed body.
    #[doc(hidden)]
    fn into_answer(self) -> Response<UnsyncBoxBody<Bytes, BoxError>>;
}

#[cfg(feature = "axum")]
impl<T: axum::response::IntoResponse> IntoAnswer for T {
    fn into_answer(self) -> Answer {
        boxed(self.into_response())
    }
}

#[cfg(not(feature = "axum"))]
impl<B> IntoAnswer for Response<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn into_answer(self) -> Answer {
        boxed(self)
    }
}

/// The answers of a layer.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) busy_status: StatusCode,
    pub(crate) on_reject: Option<Arc<dyn Fn(Rejection) -> Answer + Send + Sync>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            busy_status: StatusCode::CONFLICT,
            on_reject: None,
        }
    }
}

impl Answers {
    /// Logs why a request did not get its lock, or lost it, and returns the answer.
    pub(crate) fn refuse(&self, error: &Error, pace: Pace, grpc: bool) -> Answer {
        let mut rejection = Rejection::of(error, pace);
        rejection::log(rejection.reason(), error);
        if rejection.reason() == Reason::Busy {
            rejection.status = self.busy_status;
        }
        self.answer(rejection, grpc)
    }

    /// Logs that a request exceeds its layer's limit of pending requests, and returns the answer.
    pub(crate) fn refuse_pending(&self, limit: u32, busy: &Error, grpc: bool) -> Answer {
        tracing::info!(error = %busy, limit, "request refused: too many pending requests in this layer");
        self.answer(Rejection::too_many_pending(busy), grpc)
    }

    /// Logs why a request has no usable keys, and returns the answer.
    pub(crate) fn refuse_keys(
        &self,
        reason: &impl fmt::Display,
        rejection: Rejection,
        grpc: bool,
    ) -> Answer {
        if rejection.reason() == Reason::Config {
            tracing::error!(%reason, "request refused: the layer is set up wrongly");
        } else {
            tracing::info!(%reason, "request refused: no valid lock key");
        }
        self.answer(rejection, grpc)
    }

    /// Returns the answer to a request whose body took too long.
    pub(crate) fn refuse_body(&self, grpc: bool) -> Answer {
        self.answer(Rejection::new(Reason::BodyTimeout), grpc)
    }

    fn answer(&self, mut rejection: Rejection, grpc: bool) -> Answer {
        count_answer(rejection.reason());
        rejection.grpc = grpc;
        match &self.on_reject {
            Some(own) => own(rejection),
            None => boxed(rejection.answer()),
        }
    }
}

/// Counts an answer in place of the handler's response, or an error in place of the service's.
#[cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, reason = "nothing is counted")
)]
pub(crate) fn count_answer(reason: Reason) {
    #[cfg(feature = "metrics")]
    count(Some(reason));
}

/// Counts none of each reason, so that the first increase of each is seen.
pub(crate) fn count_no_answer() {
    #[cfg(feature = "metrics")]
    count(None);
}

/// Counts one of this reason, and none of the others: the exporter may have been installed after the layer was made.
#[cfg(feature = "metrics")]
fn count(reason: Option<Reason>) {
    const ANSWERS: &str = "distlock_tower_answers_total";
    metrics::describe_counter!(
        ANSWERS,
        metrics::Unit::Count,
        "Requests that a layer refused, or whose lock was lost"
    );
    for one in Reason::ALL {
        let more = u64::from(reason == Some(one));
        metrics::counter!(ANSWERS, "reason" => one.label()).increment(more);
    }
}

/// The answer of a key function or an extractor, translated for gRPC clients.
pub(crate) fn key_function_answer(answer: Answer, grpc: bool) -> Answer {
    let status = answer.status();
    if status.is_server_error() {
        // Nothing in the request is wrong: an extension, `ConnectInfo` or a state is missing, for example.
        tracing::error!(
            %status,
            "request answered by its key function or an extractor with a server error: what they need may be missing in \
             the set-up of the program, such as an `Extension`, `ConnectInfo`, or a capture of the route"
        );
    } else {
        tracing::debug!(%status, "request answered by its key function or an extractor");
    }
    if grpc {
        grpc::translate(answer)
    } else {
        answer
    }
}

/// Logs a release that failed after the handler had ended. The client still gets the handler's outcome.
pub(crate) fn release_failed(error: &Error) {
    tracing::warn!(%error, "the handler completed, but releasing its lock failed");
}

/// Logs that a handler or a response body was dropped because of its slow client.
pub(crate) fn body_timed_out<'a>(timeout: &impl fmt::Display, keys: impl Iterator<Item = &'a str>) {
    let keys: Vec<_> = keys.map(|key| format!("{key:?}")).collect();
    let keys = keys.join(", ");
    tracing::warn!(reason = %timeout, keys, "request cut off and its lock released");
}

/// Logs that a preflight of CORS has come to a layer.
pub(crate) fn preflight() {
    tracing::warn!(
        "a CORS preflight takes the lock: put the CORS layer outside of the lock layer, or choose the methods that are \
         locked with `methods`"
    );
}

/// Logs that the layer cannot bound the time that bodies of this type take.
pub(crate) fn unknown_request_body(body: &'static str) {
    tracing::warn!(
        body,
        "the layer cannot time request bodies of this type: a client that sends slowly keeps its lock held; \
         put the layer that makes them, such as a body limit, into a `layer` call of its own outside, or make them an \
         axum body or a boxed body before this layer, or set `max_hold`, or set `request_body_timeout` to \
         `Duration::MAX`"
    );
}

/// Logs that a response body ends in an error.
pub(crate) fn lost_while_streaming(error: &Error) {
    tracing::error!(%error, "lock lost while its response body was sent; the body ends in an error");
}

/// The answer to a wrong use of the layer. `detail` must not need escaping in JSON.
#[cfg(feature = "axum")]
pub(crate) fn misused(detail: &'static str) -> Response<String> {
    tracing::error!("{detail}");
    let mut rejection = Rejection::new(Reason::Config);
    rejection.detail = detail;
    rejection.answer()
}

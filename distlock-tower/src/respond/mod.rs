//! Answers in place of the handler's, and what the log says of them.
//!
//! Keys and holders may name tenants, and the reader of an answer may be anyone: they go to the log, here, and into no
//! answer that the layer makes by itself.

mod grpc;
mod info;
mod problem;
mod rejection;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use distlock::Error;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
#[cfg(feature = "axum")]
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;

pub(crate) use self::grpc::is_grpc;
pub use self::info::LockInfo;
pub use self::rejection::{Reason, Rejection};
use crate::error::BoxError;

/// Whole answers, whoever made them.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

pub(crate) fn boxed<B>(answer: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    answer.map(|body| UnsyncBoxBody::new(body.map_err(Into::into)))
}

/// What [`LockLayer::on_reject`](crate::LockLayer::on_reject) may answer with: whatever axum can answer with, and
/// without the feature `axum` a response of a body of `Bytes`. Not meant to be implemented elsewhere.
pub trait IntoAnswer {
    /// The answer, its body boxed.
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

/// How a layer answers.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) busy: StatusCode,
    pub(crate) on_reject: Option<Arc<dyn Fn(Rejection) -> Answer + Send + Sync>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            busy: StatusCode::CONFLICT,
            on_reject: None,
        }
    }
}

impl Answers {
    /// Logs why a request has no lock, or no longer, and answers it.
    pub(crate) fn refuse(&self, error: &Error, grpc: bool) -> Answer {
        let mut rejection = Rejection::of(error);
        match rejection.reason() {
            Reason::Busy | Reason::Overloaded => tracing::debug!(%error, "request refused: busy"),
            Reason::Unavailable => tracing::warn!(%error, "request refused: no lock to be had"),
            Reason::Lost => tracing::error!(%error, "lock lost under a request"),
            Reason::Key => tracing::debug!(%error, "request refused: its key cannot name a lock"),
            Reason::Config => {
                tracing::error!(%error, "request refused: locks are not set up right");
            }
        }
        if rejection.reason() == Reason::Busy {
            rejection.status = self.busy;
        }
        self.answer(rejection, grpc)
    }

    /// Logs that a request is one too many for its layer, and answers it.
    pub(crate) fn refuse_pending(&self, limit: u32, busy: &Error, grpc: bool) -> Answer {
        tracing::debug!(error = %busy, limit, "request refused: too many pending requests");
        self.answer(Rejection::too_many_pending(busy), grpc)
    }

    /// Logs why the keys of a request cannot be locked, and answers it.
    pub(crate) fn refuse_keys(
        &self,
        reason: &impl fmt::Display,
        rejection: Rejection,
        grpc: bool,
    ) -> Answer {
        tracing::debug!(%reason, "request refused");
        self.answer(rejection, grpc)
    }

    fn answer(&self, mut rejection: Rejection, grpc: bool) -> Answer {
        rejection.grpc = grpc;
        match &self.on_reject {
            Some(own) => own(rejection),
            None => boxed(rejection.answer()),
        }
    }
}

/// The answer of a key function or of an extractor, in a form that the client can read.
pub(crate) fn own_answer(answer: Answer, grpc: bool) -> Answer {
    tracing::debug!(status = %answer.status(), "request answered in place of its key");
    if grpc {
        grpc::translated(answer)
    } else {
        answer
    }
}

/// Logs a release that the handler's own outcome was passed on after.
pub(crate) fn release_failed(error: &Error) {
    tracing::warn!(%error, "the handler has ended and its lock was not released as it should");
}

/// Logs that a response was cut short.
pub(crate) fn lost_while_streaming(error: &Error) {
    tracing::error!(%error, "lock lost under a response that was being sent");
}

/// The answer to a use of the layer that cannot work; `detail` needs no escaping in JSON.
#[cfg(feature = "axum")]
pub(crate) fn misused(detail: &'static str) -> Response<Full<Bytes>> {
    tracing::error!("{detail}");
    let mut rejection = Rejection::new(Reason::Config);
    rejection.detail = detail;
    rejection.answer()
}

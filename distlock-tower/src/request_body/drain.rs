//! Reads the rest of a body that nobody is going to read, before an answer.
//!
//! A client of HTTP/1 that writes its whole request before it reads sees a broken pipe, and no answer, if the server closes
//! the connection under it. It then cannot know that nothing was done.
//!
//! A body that took too long has no rest: its reader waited for it.

use std::any::Any;
use std::mem;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt as _, Limited};
use tokio::runtime::Handle;

use super::{KeyedBody, Rebuild};
use crate::error::BoxError;

/// How many bytes of a body are thrown away by default.
pub(crate) const DRAIN_LIMIT: u64 = 4 * 1024 * 1024;

/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Whether the rest of this request's body has to be read for its client to see an answer.
///
/// With HTTP/2 a request is one of several streams, and ends without its connection. A client that expects a
/// `100 Continue` has not begun to send, and reading would tell it to begin.
pub(crate) fn may_drain(parts: &Parts) -> bool {
    let expects = parts.headers.get(EXPECT);
    let waits = expects.is_some_and(|expected| {
        let expected = expected.as_bytes();
        expected.eq_ignore_ascii_case(b"100-continue")
    });
    may_drain_begun(parts) && !waits
}

/// The same once its body was polled: a client that expects a `100 Continue` was told to begin then.
pub(crate) fn may_drain_begun(parts: &Parts) -> bool {
    parts.version <= Version::HTTP_11
}

/// Reads a body to its end, but not more than `limit` bytes and not for longer than a second. A body that announces more
/// is not read at all.
pub(crate) async fn drain<B>(mut body: Pin<&mut B>, limit: u64)
where
    B: Body<Data = Bytes>,
{
    let is_hopeless = limit == 0 || body.is_end_stream() || body.size_hint().lower() > limit;
    // Outside a runtime there are no timers.
    if is_hopeless || Handle::try_current().is_err() {
        return;
    }
    let mut left = limit;
    let reading = async {
        loop {
            let frame = body.frame().await.and_then(Result::ok);
            let length = frame.as_ref().map(length_of);
            let Some(rest) = length.and_then(|length| left.checked_sub(length)) else {
                return;
            };
            left = rest;
            // A body that has arrived as a whole would let no other task run.
            tokio::task::consume_budget().await;
        }
    };
    // Whether it was all is no matter: the answer is sent now.
    let _ended = tokio::time::timeout(DRAIN_TIME, reading).await;
}

/// An empty frame counts too. A body may have any number of them.
fn length_of(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(1, |data| data.len().max(1) as u64)
}

/// The same for a body of a type that is known here; see [`watch`](super::watch).
pub(crate) fn drain_unread<B: 'static>(body: &mut B, limit: u64) -> Option<BoxFuture<'static, ()>> {
    let body: &mut dyn Any = body;
    #[cfg(feature = "axum")]
    if let Some(draining) = drain_as::<axum::body::Body>(body, limit) {
        return Some(draining);
    }
    drain_as::<UnsyncBoxBody<Bytes, BoxError>>(body, limit)
        .or_else(|| drain_as::<BoxBody<Bytes, BoxError>>(body, limit))
}

fn drain_as<T: Rebuild>(body: &mut dyn Any, limit: u64) -> Option<BoxFuture<'static, ()>> {
    drain_exactly(body, limit, T::empty)
        .or_else(|| drain_exactly(body, limit, || Limited::new(T::empty(), 0)))
}

/// `None` for a body that has ended. Most requests have none.
fn drain_exactly<B>(
    body: &mut dyn Any,
    limit: u64,
    empty: fn() -> B,
) -> Option<BoxFuture<'static, ()>>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let body = match body.downcast_mut::<KeyedBody<B>>() {
        Some(keyed) => keyed.unread_mut()?,
        None => body.downcast_mut()?,
    };
    let mut body = mem::replace(body, empty());
    let has_rest = !body.is_end_stream();
    has_rest.then(|| -> BoxFuture<'static, ()> {
        Box::pin(async move { drain(Pin::new(&mut body), limit).await })
    })
}

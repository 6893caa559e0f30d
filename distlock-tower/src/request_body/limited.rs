//! A timed axum body behind a limit of its length.
//!
//! The limit cannot be taken off, so the handler gets an axum body around it, inside of another limit. That axum body would wrap
//! the error of the limit once more, and axum's extractors look for it only so deep. So the outer limit is the same one, and
//! makes the error itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body as AxumBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{LengthLimitError, Limited};

use super::timed::TimedBody;
use crate::error::BoxError;

/// Gives the outer limit one byte too many when the inner one has refused.
pub(super) struct LimitedBody {
    inner: TimedBody<Limited<AxumBody>>,
    /// How many bytes the outer limit still lets pass.
    left: usize,
}

impl LimitedBody {
    pub(super) fn new(inner: TimedBody<Limited<AxumBody>>, limit: usize) -> Self {
        Self { inner, left: limit }
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.left = self.left.saturating_sub(length);
                Some(Ok(frame))
            }
            // No longer than the piece that was refused.
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                let too_many = vec![0; self.left.saturating_add(1)];
                Some(Ok(Frame::data(too_many.into())))
            }
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

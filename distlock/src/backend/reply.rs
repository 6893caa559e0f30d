//! The pending answer of a backend.

use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tokio::task::coop::{Coop, cooperative};

use super::Fault;

/// The pending answer of a backend. A server in this process answers at once, without an allocation.
#[must_use = "futures do nothing unless awaited"]
pub struct Reply<'a, T>(Either<AnswerAtOnce<T>, BoxedReply<'a, T>>);

type AnswerAtOnce<T> = Coop<Ready<Result<T, Fault>>>;

type BoxedReply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

impl<'a, T> Reply<'a, T> {
    /// An answer that has to be waited for.
    pub fn new(reply: impl Future<Output = Result<T, Fault>> + Send + 'a) -> Self {
        Self(Either::Right(Box::pin(reply)))
    }

    /// An answer that is there already.
    ///
    /// It takes part in tokio's cooperation, like an answer from a socket. Otherwise a task that acquires and releases in a
    /// loop would never yield to the other tasks of its thread.
    pub(crate) fn at_once(answer: Result<T, Fault>) -> Self {
        Self(Either::Left(cooperative(ready(answer))))
    }
}

impl<T> Future for Reply<'_, T> {
    type Output = Result<T, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> fmt::Debug for Reply<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

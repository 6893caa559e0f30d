//! A future that is dropped in the middle, after a number of polls.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future and what the test wants of it: to be polled this often, each time when it is woken, and then to be dropped.
/// Yields its output where it is done before that.
#[derive(Debug)]
pub struct DropAfter<F> {
    polls: usize,
    inner: Option<Pin<Box<F>>>,
}

/// Drops `future` after this many polls.
pub fn drop_after<F: Future>(polls: usize, future: F) -> DropAfter<F> {
    let inner = Some(Box::pin(future));
    DropAfter { polls, inner }
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            self.inner = None;
            return Poll::Ready(None);
        }
        self.polls -= 1;
        let inner = self.inner.as_mut().expect("polled again after it was done");
        if let Poll::Ready(output) = inner.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if self.polls == 0 {
            self.inner = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

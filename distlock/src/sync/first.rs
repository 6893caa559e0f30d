//! Waiting for a value that must not be lost, beside something else.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

pin_project! {
    /// See [`first`].
    #[project = Projected]
    #[derive(Debug)]
    pub(crate) enum First<A, B> {
        Waits {
            #[pin]
            value: A,
            #[pin]
            others: B,
        },
        Done,
    }
}

/// The output of the first of two futures that is done; of `value` if both are.
///
/// For outputs that hold something, such as a granted key. The futures of a `select!` are dropped after their output was taken out. If
/// that drop panics, as the drop of a waker may, nobody drops the output. Here both futures are dropped before.
pub(crate) fn first<T, A, B>(value: A, others: B) -> First<A, B>
where
    A: Future<Output = T>,
    B: Future<Output = T>,
{
    First::Waits { value, others }
}

impl<T, A, B> Future for First<A, B>
where
    A: Future<Output = T>,
    B: Future<Output = T>,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Projected::Waits { value, others } = self.as_mut().project() else {
            panic!("polled after it was done");
        };
        let output = match value.poll(cx) {
            Poll::Ready(output) => output,
            Poll::Pending => ready!(others.poll(cx)),
        };
        self.set(First::Done);
        Poll::Ready(output)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use scopeguard::defer;

    use super::*;

    #[test]
    fn output_is_dropped_if_the_drop_of_a_future_panics() {
        let output = Arc::new(());
        let others = async {
            defer! { panic!("a waker, when it is dropped") }
            std::future::pending().await
        };
        let value = async {
            let mut polls = 0;
            poll_fn(|_| {
                polls += 1;
                if polls > 1 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            Arc::clone(&output)
        };
        let mut both = Box::pin(first(value, others));
        assert!(both.as_mut().now_or_never().is_none());
        assert!(catch_unwind(AssertUnwindSafe(|| both.as_mut().now_or_never())).is_err());
        drop(both);
        assert_eq!(Arc::strong_count(&output), 1);
    }

    #[test]
    fn value_counts_if_both_are_done() {
        assert_eq!(first(async { 1 }, async { 2 }).now_or_never(), Some(1));
        assert_eq!(
            first(std::future::pending(), async { 2 }).now_or_never(),
            Some(2)
        );
    }
}

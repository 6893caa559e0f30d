//! Acquires, runs a body and releases. The value of the body goes to a function if the hold turns out to be lost.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::{Error, polled_after_completion};
use crate::guard::run::{BoxedAcquisition, Guarded, finish, lost_only};

pin_project! {
    /// The future of [`OnLost::run`](crate::OnLost::run) and [`OnLost::try_run`](crate::OnLost::try_run).
    pub(crate) struct RunOr<F: Future, H, R> {
        #[pin]
        guarded: Guarded<F>,
        // Taken when the body has ended.
        on_lost: Option<H>,
        // Makes the result if the body was not run to its end.
        refused: fn(Error) -> R,
        // Makes it from the output of the body and the result of the release.
        settle: fn(F::Output, Result<(), Error>, H) -> R,
    }
}

impl<T, F, H> RunOr<F, H, Result<T, Error>>
where
    F: Future<Output = T>,
    H: FnOnce(T, Error) -> Result<T, Error>,
{
    pub(crate) fn run(acquiring: BoxedAcquisition, body: F, on_lost: H) -> Self {
        Self {
            guarded: Guarded::new(acquiring, body),
            on_lost: Some(on_lost),
            refused: Err,
            settle: |value, released, on_lost| match lost_only(released) {
                Ok(()) => Ok(value),
                Err(lost) => on_lost(value, lost),
            },
        }
    }
}

impl<T, E, F, H> RunOr<F, H, Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
    E: From<Error>,
    H: FnOnce(T, Error) -> Result<T, E>,
{
    pub(crate) fn try_run(acquiring: BoxedAcquisition, body: F, on_lost: H) -> Self {
        Self {
            guarded: Guarded::new(acquiring, body),
            on_lost: Some(on_lost),
            refused: |error| Err(error.into()),
            settle: |output, released, on_lost| match output {
                Ok(value) => match lost_only(released) {
                    Ok(()) => Ok(value),
                    Err(lost) => on_lost(value, lost),
                },
                failed => finish(failed, released),
            },
        }
    }
}

impl<F: Future, H, R> Future for RunOr<F, H, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = self.project();
        let ended = ready!(this.guarded.poll(cx));
        let Some(on_lost) = this.on_lost.take() else {
            polled_after_completion();
        };
        Poll::Ready(match ended {
            Ok((output, released)) => (this.settle)(output, released, on_lost),
            Err(error) => (this.refused)(error),
        })
    }
}

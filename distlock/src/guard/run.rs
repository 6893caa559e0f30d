//! Acquire, run a body inside the critical section, release and confirm: one future for all three.
//!
//! The body is pinned once, where the caller put the future: it is moved at no time, and the whole is little larger
//! than the body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::Error;
use crate::guard::Guard;
use crate::scope::{Section, poll_body};
use crate::telemetry;

/// The future of an [`Acquire`](crate::Acquire).
#[must_use = "futures do nothing unless awaited"]
pub struct Acquiring<G = Guard>(Pin<Box<dyn Future<Output = Result<G, Error>> + Send>>);

impl<G> Acquiring<G> {
    pub(crate) fn new(acquire: impl Future<Output = Result<G, Error>> + Send + 'static) -> Self {
        Self(Box::pin(acquire))
    }
}

impl<G> Future for Acquiring<G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<G> fmt::Debug for Acquiring<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}

/// A guard being released.
pub(crate) type Releasing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

enum Stage {
    Acquiring(Acquiring),
    // The section first: its frame closes before its guard ends.
    Running(Section, Guard),
    /// The body, and no lock.
    #[cfg(feature = "macros")]
    Unlocked,
    Releasing(Releasing),
    Done,
}

pin_project! {
    /// The three steps. Yields the body's output and what the release said.
    pub(crate) struct Guarded<F: Future> {
        stage: Stage,
        output: Option<F::Output>,
        #[pin]
        body: Option<F>,
    }

    impl<F: Future> PinnedDrop for Guarded<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            match this.stage {
                Stage::Running(section, _) => section.enter(|| this.body.set(None)),
                _ => this.body.set(None),
            }
        }
    }
}

impl<F: Future> Guarded<F> {
    pub(crate) fn new(acquiring: Acquiring, body: F) -> Self {
        Self {
            stage: Stage::Acquiring(acquiring),
            output: None,
            body: Some(body),
        }
    }

    /// The same from a guard that is there already, or without any.
    #[cfg(feature = "macros")]
    pub(crate) fn held(guard: Option<Guard>, body: F) -> Self {
        let running = |guard: Guard| Stage::Running(guard.section(), guard);
        Self {
            stage: guard.map_or(Stage::Unlocked, running),
            output: None,
            body: Some(body),
        }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<(F::Output, Result<(), Error>), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::Acquiring(acquiring) => {
                    let guard = ready!(Pin::new(acquiring).poll(cx))?;
                    *this.stage = Stage::Running(guard.section(), guard);
                }
                Stage::Running(section, _) => {
                    let output = ready!(poll_body(section, this.body.as_mut(), cx));
                    let Stage::Running(section, guard) = std::mem::replace(this.stage, Stage::Done)
                    else {
                        return Poll::Pending;
                    };
                    drop(section);
                    // Lost: dropping the guard ends what is left of the hold, in the background.
                    *this.output = Some(output?);
                    *this.stage = Stage::Releasing(Box::pin(guard.release()));
                }
                #[cfg(feature = "macros")]
                Stage::Unlocked => {
                    let Some(body) = this.body.as_mut().as_pin_mut() else {
                        return Poll::Pending;
                    };
                    let output = ready!(body.poll(cx));
                    this.body.set(None);
                    *this.stage = Stage::Done;
                    return Poll::Ready(Ok((output, Ok(()))));
                }
                Stage::Releasing(releasing) => {
                    let released = ready!(releasing.as_mut().poll(cx));
                    *this.stage = Stage::Done;
                    if let Some(output) = this.output.take() {
                        return Poll::Ready(Ok((output, released)));
                    }
                }
                Stage::Done => return Poll::Pending,
            }
        }
    }
}

pin_project! {
    /// A body under a lock; made by [`Acquire::run`](crate::Acquire::run).
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F: Future> {
        #[pin]
        guarded: Guarded<F>,
    }
}

impl<F: Future> Run<F> {
    pub(crate) fn new(acquiring: Acquiring, body: F) -> Self {
        Self {
            guarded: Guarded::new(acquiring, body),
        }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (output, released) = ready!(self.project().guarded.poll(cx))?;
        Poll::Ready(lost_only(released).map(|()| output))
    }
}

pin_project! {
    /// A body that returns a `Result`, under a lock; made by [`Acquire::try_run`](crate::Acquire::try_run).
    #[must_use = "futures do nothing unless awaited"]
    pub struct TryRun<F: Future> {
        #[pin]
        guarded: Guarded<F>,
    }
}

impl<F: Future> TryRun<F> {
    pub(crate) fn new(acquiring: Acquiring, body: F) -> Self {
        Self {
            guarded: Guarded::new(acquiring, body),
        }
    }
}

impl<T, E, F> Future for TryRun<F>
where
    F: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (output, released) = ready!(self.project().guarded.poll(cx))?;
        Poll::Ready(finish(output, released))
    }
}

/// The body's own error wins over what its release said.
pub(crate) fn finish<T, E: From<Error>>(
    output: Result<T, E>,
    released: Result<(), Error>,
) -> Result<T, E> {
    match (output, lost_only(released)) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(lost)) => Err(lost.into()),
        (Err(own), Ok(())) => Err(own),
        (Err(own), Err(lost)) => {
            telemetry::release_failed(&lost);
            Err(own)
        }
    }
}

/// What of a release's outcome concerns the caller of a body that has run to its end: a loss. The rest is logged, for
/// the lease frees the lock.
pub(crate) fn lost_only(released: Result<(), Error>) -> Result<(), Error> {
    match released {
        Err(lost) if lost.is_lost() => Err(lost.after_body()),
        Err(other) => {
            telemetry::release_failed(&other);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

impl<F: Future> fmt::Debug for Run<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl<F: Future> fmt::Debug for TryRun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryRun").finish_non_exhaustive()
    }
}

//! Acquires, runs a body inside the critical section, and releases: one future for all three steps.
//!
//! The body is pinned once, in the caller's future, and never moved. The whole future is little larger than the body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::{Error, polled_after_completion};
use crate::guard::Guard;
use crate::guard::critical_section::CriticalSection;
use crate::scope::poll_body;
use crate::telemetry;

/// An acquisition under way.
pub(crate) type BoxedAcquisition = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// The stages of [`Guarded`].
enum Stage {
    Acquiring(BoxedAcquisition),
    Locked(CriticalSection),
    /// The body runs without a lock.
    #[cfg(feature = "macros")]
    Unlocked,
    Done,
}

pin_project! {
    /// Acquires, runs the body and releases. Yields the output of the body and the result of the release.
    pub(crate) struct Guarded<F: Future> {
        stage: Stage,
        output: Option<F::Output>,
        #[pin]
        body: Option<F>,
    }

    impl<F: Future> PinnedDrop for Guarded<F> {
        fn drop(this: Pin<&mut Self>) {
            // The body is dropped first, and inside its section, so that code in its `Drop` still sees the scope.
            let mut this = this.project();
            match this.stage {
                Stage::Locked(section) => section.enter(|| this.body.set(None)),
                _ => this.body.set(None),
            }
        }
    }
}

impl<F: Future> Guarded<F> {
    pub(crate) fn new(acquiring: BoxedAcquisition, body: F) -> Self {
        Self {
            stage: Stage::Acquiring(acquiring),
            output: None,
            body: Some(body),
        }
    }

    /// Starts with a guard that was already acquired, or without any lock.
    #[cfg(feature = "macros")]
    pub(crate) fn held(guard: Option<Guard>, body: F) -> Self {
        let locked = |guard| Stage::Locked(CriticalSection::new(guard));
        Self {
            stage: guard.map_or(Stage::Unlocked, locked),
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
                    let guard = ready!(acquiring.as_mut().poll(cx))?;
                    *this.stage = Stage::Locked(CriticalSection::new(guard));
                }
                Stage::Locked(locked) => {
                    if let CriticalSection::Running { section, .. } = locked {
                        match ready!(poll_body(section, this.body.as_mut(), cx)) {
                            Ok(output) => *this.output = Some(output),
                            Err(lost) => {
                                // Drops the section before the guard: see `CriticalSection::Running`.
                                *this.stage = Stage::Done;
                                return Poll::Ready(Err(lost));
                            }
                        }
                        locked.start_release();
                    }
                    let released = ready!(locked.poll_released(cx));
                    *this.stage = Stage::Done;
                    if let Some(output) = this.output.take() {
                        return Poll::Ready(Ok((output, released)));
                    }
                }
                #[cfg(feature = "macros")]
                Stage::Unlocked => {
                    let Some(body) = this.body.as_mut().as_pin_mut() else {
                        polled_after_completion();
                    };
                    let output = ready!(body.poll(cx));
                    this.body.set(None);
                    *this.stage = Stage::Done;
                    return Poll::Ready(Ok((output, Ok(()))));
                }
                Stage::Done => polled_after_completion(),
            }
        }
    }
}

pin_project! {
    /// The future of a body that runs under a lock, made by [`Acquire::run`](crate::Acquire::run).
    ///
    /// # Cancel safety
    /// The same as [`Acquire::run`](crate::Acquire::run).
    ///
    /// # Examples
    /// See [`Acquire::run`](crate::Acquire::run).
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F: Future> {
        #[pin]
        guarded: Guarded<F>,
    }
}

impl<F: Future> Run<F> {
    pub(crate) fn new(acquiring: BoxedAcquisition, body: F) -> Self {
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
    /// The future of a body that returns a `Result` and runs under a lock, made by
    /// [`Acquire::try_run`](crate::Acquire::try_run).
    ///
    /// # Cancel safety
    /// The same as [`Acquire::try_run`](crate::Acquire::try_run).
    ///
    /// # Examples
    /// See [`Acquire::try_run`](crate::Acquire::try_run).
    #[must_use = "futures do nothing unless awaited"]
    pub struct TryRun<F: Future> {
        #[pin]
        guarded: Guarded<F>,
    }
}

impl<F: Future> TryRun<F> {
    pub(crate) fn new(acquiring: BoxedAcquisition, body: F) -> Self {
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

/// Combines the result of a body with that of its release. The error of the body comes first.
pub(crate) fn finish<T, E: From<Error>>(
    output: Result<T, E>,
    released: Result<(), Error>,
) -> Result<T, E> {
    match (output, lost_only(released)) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(lost)) => Err(lost.into()),
        (Err(own), Ok(())) => Err(own),
        // The caller gets one error. That of the body is its own, so the loss goes to the log.
        (Err(own), Err(lost)) => {
            telemetry::release_failed(&lost);
            Err(own)
        }
    }
}

/// Returns only a loss of the result of a release, marked as found after the body. Any other failure is logged, because
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

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::task::JoinSet;

    use crate::clock::{self, Clock};
    use crate::{Client, MemoryServer};

    #[tokio::test]
    async fn body_that_waits_is_not_polled_while_nothing_happens() {
        let client = Client::on_clock(Clock::boot(), &MemoryServer::new());
        // The client's task runs before the first grant if the server is real.
        drop(client.lock("other").acquire().await.unwrap());
        tokio::task::yield_now().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let body = || {
            let polls = Arc::clone(&polls);
            poll_fn::<(), _>(move |_| {
                polls.fetch_add(1, Ordering::Relaxed);
                std::task::Poll::Pending
            })
        };
        let mut running = JoinSet::new();
        for fixed in [true, false] {
            let acquire = client.lock(format!("fixed: {fixed}")).acquire();
            let acquire = if fixed {
                acquire.lease(Duration::from_secs(300))
            } else {
                acquire
            };
            running.spawn(acquire.run(body()));
        }
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn body_that_waits_is_dropped_soon_after_a_suspend_that_outlasts_its_lease() {
        let client = Client::on_clock(Clock::boot(), &MemoryServer::new());
        let lock = client.lock("k");
        for fixed in [true, false] {
            let lease = Duration::from_secs(if fixed { 300 } else { 30 });
            let acquire = lock.acquire();
            let acquire = if fixed { acquire.lease(lease) } else { acquire };
            let running = tokio::spawn(acquire.run(pending::<()>()));
            while !lock.is_locked().await.unwrap() {
                tokio::task::yield_now().await;
            }
            clock::suspend(lease);
            let ended = tokio::time::timeout(lease / 3, running).await;
            let lost = ended.expect("it ends before its timers do");
            assert!(lost.unwrap().unwrap_err().is_lost(), "fixed: {fixed}");
            lock.force_release().await.unwrap();
        }
    }
}

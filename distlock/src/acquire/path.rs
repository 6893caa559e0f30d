//! The path from the builder of an acquisition to a guard.
//!
//! The scopes around the caller are searched first ([`reentry`](super::reentry)). If none of them has the key, the acquisition
//! goes to [`wait`](crate::wait).

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::beside::acquire_beside;
use super::handle::Handle;
use super::observed::observed;
use super::reentry::{Enclosing, check_open, find_enclosing};
use super::{Acquire, LockSet, multi, quorum};
use crate::error::Error;
use crate::guard::Guard;
use crate::guard::from_guard::{AcquiredGuard, FromGuard};
use crate::local::{HoldShare, watching};
use crate::telemetry::LockType;
use crate::wait;
use crate::wait::quorum::QuorumHold;

/// The future of an [`Acquire`](crate::Acquire), which yields its guard.
///
/// # Cancel safety
/// The same as [`Acquire`](crate::Acquire).
///
/// # Examples
/// See [`Acquire`](crate::Acquire).
#[must_use = "futures do nothing unless awaited"]
pub struct Acquiring<G = Guard>(Pin<Box<dyn Future<Output = Result<G, Error>> + Send>>);

impl<G> Acquiring<G> {
    pub(crate) fn new(acquire: impl Future<Output = Result<G, Error>> + Send + 'static) -> Self {
        Self(Box::pin(acquire))
    }
}

// A panic on the way, of a waker or a subscriber of the log, ends the acquisition and what it was granted.
impl<G> UnwindSafe for Acquiring<G> {}
impl<G> RefUnwindSafe for Acquiring<G> {}

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

impl<G: FromGuard> IntoFuture for Acquire<G> {
    type Output = Result<G, Error>;
    type IntoFuture = Acquiring<G>;

    fn into_future(self) -> Acquiring<G> {
        Acquiring::new(async move { Ok(G::from_guard(AcquiredGuard::new(self.acquire().await?))) })
    }
}

impl<G: FromGuard> Acquire<G> {
    /// Acquires in the name of the client in this process. If the client takes another identity meanwhile, the acquisition
    /// starts again.
    pub(super) async fn acquire(&self) -> Result<Guard, Error> {
        // Made where it stays: a future that is moved is copied, which costs more than the look.
        let acquiring = pin!(async {
            loop {
                match self.acquire_as_it_is().await {
                    Err(Error::Closed { .. }) if !self.locks.are_closed() => {}
                    ended => return ended,
                }
            }
        });
        watching(|| self.locks.look(), acquiring).await
    }

    async fn acquire_as_it_is(&self) -> Result<Guard, Error> {
        let guard = match &self.locks {
            LockSet::One(handle) => self.acquire_one(handle).await?,
            LockSet::All(handles) => Box::pin(self.acquire_all(handles)).await?,
            LockSet::Quorum(handles) => Box::pin(self.acquire_quorum(handles)).await?,
            LockSet::Refused(error) => return Err((**error).clone()),
        };
        // Only after everything is granted: if the acquisition fails, none of its keys must stay taken.
        if let Some(bounds) = &self.settings.bounds {
            guard.keep_for(bounds.hold_at_least);
        }
        Ok(guard)
    }

    async fn acquire_one(&self, handle: &Handle) -> Result<Guard, Error> {
        let lock_type = LockType::Single(handle.kind);
        let mut one = self.settings.checked(handle, lock_type)?;
        match find_enclosing(&mut one).await? {
            Enclosing::Reenter(share, _) => return Ok(Guard::new(share)),
            // Boxed, because this is rare, and each acquisition would have room for it.
            Enclosing::Beside(beside) => {
                let share = Box::pin(acquire_beside(one, beside)).await?;
                return Ok(Guard::new(share));
            }
            Enclosing::None => {}
        }
        check_open(&one)?;
        // Not taken apart, which would keep it twice in this future.
        let key = &one.requested().resource.key;
        let acquire = || wait::acquire(&one.registry, &one.request);
        let mut shares = observed(&one, [key].into_iter(), acquire).await?;
        let share = HoldShare::new(shares.remove(0), None);
        Ok(Guard::new(share))
    }

    async fn acquire_all(&self, handles: &[Handle]) -> Result<Guard, Error> {
        let requests = self.settings.checked_all(handles, LockType::Multi)?;
        let shares = multi::acquire(requests).await?;
        let needs = shares.len();
        Ok(Guard::of(shares, needs))
    }

    async fn acquire_quorum(&self, handles: &[Handle]) -> Result<Guard, Error> {
        let mut requests = self.settings.checked_quorum(handles)?;
        let needs = wait::quorum::majority_of(requests.len());
        let (entered, outer) = quorum::reenter(&mut requests).await?;
        if entered.len() >= needs
            && let Some(outer) = outer
        {
            let hold = QuorumHold::inside(&outer, &requests, entered);
            return Ok(match hold {
                Ok(hold) => Guard::of_quorum(hold),
                Err(entered) => Guard::of(entered, needs),
            });
        }
        // Given back before the wait: a waiter holds nothing.
        drop(entered);
        requests.iter().try_for_each(check_open)?;
        let one = requests[0].clone();
        let key = &one.requested().resource.key;
        let acquire = || wait::quorum::acquire(requests, needs);
        let acquired = observed(&one, [key].into_iter(), acquire);
        Ok(Guard::of_quorum(acquired.await?))
    }
}

//! What a service under a lock fails with.

use std::error::Error as StdError;
use std::fmt;

use distlock::Error;

use crate::settings::NotAcquired;

/// Why a request of a [`ServiceLock`](super::ServiceLock) failed.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::{convert::Infallible, time::Duration};
/// use distlock_tower::{LockError, ServiceLockLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let client = distlock::Client::in_memory();
/// let _guard = client.lock("sweep").acquire().await?;
/// let layer = ServiceLockLayer::new(&client, |_: &u32| "sweep").wait(Duration::ZERO);
/// let consumer = layer.layer(service_fn(async |job: u32| Ok::<_, Infallible>(job)));
/// match consumer.oneshot(42).await {
///     Err(LockError::Lock(error)) => assert!(error.is_busy()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockError<E> {
    /// The lock could not be had or kept. The inner service was called only where the hold
    /// [was lost](distlock::Error::is_lost).
    Lock(Error),
    /// The keys of the request cannot be locked; why. The inner service was not called.
    Keys(String),
    /// The layer's limit of [pending requests](super::ServiceLockLayer::max_pending_requests) is reached, and a single
    /// attempt found the lock held. The inner service was not called.
    #[non_exhaustive]
    TooManyPending {
        /// The layer's limit.
        limit: u32,
        /// What the attempt found.
        busy: Error,
    },
    /// The inner service's own error.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for LockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Keys(reason) => f.write_str(reason),
            Self::TooManyPending { limit, busy } => {
                write!(f, "too many pending requests, the limit is {limit}: {busy}")
            }
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// For tower's `BoxError` too, which is no error itself. So an inner error's source is for those to find who match.
impl<E: fmt::Debug + fmt::Display> StdError for LockError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Lock(error) | Self::TooManyPending { busy: error, .. } => error.source(),
            Self::Keys(_) | Self::Inner(_) => None,
        }
    }
}

impl<E> From<NotAcquired> for LockError<E> {
    fn from(error: NotAcquired) -> Self {
        match error {
            NotAcquired::TooManyPending { limit, busy } => Self::TooManyPending { limit, busy },
            NotAcquired::Failed(error) => Self::Lock(error),
        }
    }
}

//! The error of a service under a lock.

use std::error::Error as StdError;
use std::fmt;

use distlock::Error;

use crate::respond::Reason;
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
    /// The lock could not be acquired, or was lost. The inner service was called only if the hold [was
    /// lost](distlock::Error::is_lost).
    Lock(Error),
    /// The request has no valid keys, for the reason in the text. The inner service was not called.
    Keys(String),
    /// The layer's limit of [pending requests](super::ServiceLockLayer::max_pending_requests) is reached, and a single
    /// attempt found the lock held. The inner service was not called.
    #[non_exhaustive]
    TooManyPending {
        /// The layer's limit.
        limit: u32,
        /// The [`Timeout`](Error::Timeout) of the single attempt. It says what blocked the attempt.
        busy: Error,
    },
    /// The inner service's own error.
    Inner(E),
}

impl<E> LockError<E> {
    /// Why the layer refused the request, or replaced its outcome; `None` for the inner service's own error.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Lock(error) => Some(Reason::of(error)),
            Self::Keys(_) => Some(Reason::Key),
            Self::TooManyPending { .. } => Some(Reason::Overloaded),
            Self::Inner(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Keys(reason) => f.write_str(reason),
            Self::TooManyPending { limit, busy } => {
                write!(
                    f,
                    "too many pending requests in this layer (limit {limit}): {busy}"
                )
            }
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// Does not require `E: Error`, because tower's `BoxError` does not implement it. The source of an inner error is
// therefore not forwarded; match on `Inner` to get it.
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

//! What a service under a lock fails with.

use std::error::Error as StdError;
use std::fmt;

use distlock::Error;

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
    /// The inner service's own error.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for LockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Keys(reason) => f.write_str(reason),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// For tower's `BoxError` too, which is no error itself. So an inner error's source is for those to find who match.
impl<E: fmt::Debug + fmt::Display> StdError for LockError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Lock(error) => error.source(),
            Self::Keys(_) | Self::Inner(_) => None,
        }
    }
}

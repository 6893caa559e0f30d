//! A wait for a lock to become free, without acquiring it.

use std::panic::Location;
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::error::Error;
use crate::primitives::latch::Waiting;

/// A wait until nobody holds a lock; made by [`Lock::until_free`](crate::Lock::until_free) and
/// [`RwLock::until_free`](crate::RwLock::until_free). It starts when it is awaited.
///
/// Without a [`wait`](UntilFree::wait) it uses the client's [`default_wait`](crate::Builder::default_wait), which is unlimited
/// unless it is set.
///
/// # Errors
/// * [`Error::Timeout`]: somebody held the lock for the whole time. It names the holder, unless readers hold the lock.
/// * [`Error::Unavailable`]: the server did not answer until the time was over, or for
///   [`unavailable_after`](crate::Builder::unavailable_after).
/// * [`Error::Closed`]: the client is [closed](crate::Client::close).
/// * [`Error::Deadlock`]: the wait is inside a scope that holds the lock, and would wait for itself.
/// * [`Error::InvalidKey`], [`Error::InvalidWait`]: the arguments are invalid, and nothing was sent.
/// * [`Error::WrongType`]: the key holds a value that is not a lock.
/// * [`Error::Denied`]: the server refused a command.
///
/// # Cancel safety
/// If the future is dropped, the wait ends and leaves nothing behind.
///
/// # Examples
/// See [`Lock::until_free`](crate::Lock::until_free).
#[derive(Clone, Debug)]
#[must_use = "a wait does nothing unless it is awaited"]
pub struct UntilFree {
    handle: Handle,
    wait: Option<Duration>,
    call_site: &'static Location<'static>,
}

impl UntilFree {
    pub(super) fn new(handle: Handle, call_site: &'static Location<'static>) -> Self {
        Self {
            handle,
            wait: None,
            call_site,
        }
    }

    /// Sets how long to wait, at most a year. With zero, the client checks the lock once. [`Duration::MAX`] means waiting without
    /// limit.
    ///
    /// # Examples
    /// See [`Lock::until_free`](crate::Lock::until_free).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }
}

impl IntoFuture for UntilFree {
    type Output = Result<(), Error>;
    type IntoFuture = Waiting;

    fn into_future(self) -> Waiting {
        Waiting::new(async move { self.handle.until_free(self.wait, self.call_site).await })
    }
}

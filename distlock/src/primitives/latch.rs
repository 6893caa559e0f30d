//! The count-down latch: Redisson's `RCountDownLatch`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::config::check_count;
use crate::error::Error;

/// A count that all clients of a server share, and that is waited for until it is 0; made by
/// [`Client::count_down_latch`](crate::Client::count_down_latch).
///
/// A handle: it does no I/O by itself, is cheap to clone, and any number of handles name one latch. Where nobody has set
/// a count there is no latch, and whoever waits is done at once; at 0 the latch goes, and a new count may be set.
///
/// * **Each change counts once**, also where its answer was lost and it was sent again. For that the server remembers
///   each for some half a minute (a [`watchdog_timeout`](crate::Builder::watchdog_timeout) and an
///   [`unavailable_after`](crate::Builder::unavailable_after)) in a small key of its own beside the latch.
/// * **Any number of waiters** share one subscription. One that comes when the count is 0 already does not wait. Where a
///   new count is set before a waiter has seen the 0, it waits for that one as well.
///
/// After Redisson's `RedissonCountDownLatch`, on the same key and channel, except that: a latch that is
/// [deleted](CountDownLatch::delete) lets its waiters go, and counting down where there is no latch does nothing.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::in_memory();
/// let latch = client.count_down_latch("import:parts");
/// latch.try_set_count(2).await?;
/// let parts = async {
///     latch.count_down().await?;
///     latch.count_down().await
/// };
/// let (all, left) = tokio::join!(latch.wait(), parts);
/// all?;
/// assert_eq!(left?, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CountDownLatch {
    handle: Handle,
}

impl CountDownLatch {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Sets the count, if there is no latch yet; whether it did. 1 to 2147483647.
    ///
    /// # Errors
    /// * [`Error::Unavailable`]: nobody answered for [`unavailable_after`](crate::Builder::unavailable_after), and it is
    ///   unknown whether the change was made. Until then it is sent again, and counts once.
    /// * [`Error::InvalidCount`]: 0, or more than can be counted.
    /// * [`Error::InvalidKey`], [`Error::Denied`]; [`Error::WrongType`]: the key holds something that is no number.
    ///
    /// # Cancel safety
    /// If the future is dropped, the count may or may not be set.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let latch = client.count_down_latch("import:parts");
    /// assert!(latch.try_set_count(2).await?);
    /// assert!(!latch.try_set_count(7).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_set_count(&self, count: u32) -> Result<bool, Error> {
        check_count(count)?;
        self.handle.try_set(count).await
    }

    /// Counts down by one: what is left. Where there is no latch nothing happens.
    ///
    /// # Errors
    /// The same as [`try_set_count`](CountDownLatch::try_set_count).
    ///
    /// # Cancel safety
    /// If the future is dropped, the count-down may or may not take effect; it never takes effect twice.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let latch = client.count_down_latch("import:parts");
    /// latch.try_set_count(2).await?;
    /// assert_eq!(latch.count_down().await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<u64, Error> {
        self.handle.count_down().await.map(not_below_0)
    }

    /// What is left to count down; 0 where there is no latch. The answer is old when it arrives.
    ///
    /// # Errors
    /// The same as [`try_set_count`](CountDownLatch::try_set_count).
    ///
    /// # Cancel safety
    /// The method only reads: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// assert_eq!(client.count_down_latch("import:parts").count().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count(&self) -> Result<u64, Error> {
        self.handle.number().await.map(not_below_0)
    }

    /// Removes the latch, and lets its waiters go; whether there was one. Use it to repair a system by hand,
    /// not as a part of normal work.
    ///
    /// # Errors
    /// The same as [`try_set_count`](CountDownLatch::try_set_count).
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not be removed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let latch = client.count_down_latch("import:parts");
    /// latch.try_set_count(2).await?;
    /// assert!(latch.delete().await?);
    /// latch.wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        self.handle.force_release().await
    }

    /// Waits until the count is 0; await what it gives.
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let latch = client.count_down_latch("import:parts");
    /// latch.try_set_count(2).await?;
    /// let busy = latch.wait().timeout(Duration::from_millis(10)).await;
    /// assert!(busy.unwrap_err().is_busy());
    /// # Ok(()) }
    /// ```
    pub fn wait(&self) -> LatchWait {
        LatchWait {
            handle: self.handle.clone(),
            timeout: None,
        }
    }
}

fn not_below_0(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A wait for a latch, to be awaited; made by [`CountDownLatch::wait`].
///
/// Without a [`timeout`](LatchWait::timeout) it waits without limit, or as the client's
/// [`default_wait`](crate::Builder::default_wait) says.
///
/// # Errors
/// * [`Error::Timeout`]: the count was not 0 before the wait was over.
/// * [`Error::Unavailable`]: nobody answered, for the length of the wait or for
///   [`unavailable_after`](crate::Builder::unavailable_after).
/// * [`Error::InvalidKey`], [`Error::InvalidWait`]: refused before anything was sent.
/// * [`Error::Denied`]; [`Error::WrongType`]: the key holds something that is no number.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
///
/// # Examples
/// See [`CountDownLatch::wait`].
#[derive(Clone, Debug)]
#[must_use = "a wait does nothing unless it is awaited"]
pub struct LatchWait {
    handle: Handle,
    timeout: Option<Duration>,
}

impl LatchWait {
    /// How long to wait at most. Zero means one look, and no waiting.
    /// # Examples
    /// See [`CountDownLatch::wait`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for LatchWait {
    type Output = Result<(), Error>;
    type IntoFuture = Waiting;

    fn into_future(self) -> Waiting {
        Waiting(Box::pin(async move {
            self.handle.until_zero(self.timeout).await
        }))
    }
}

/// The future of a [`LatchWait`].
#[must_use = "futures do nothing unless awaited"]
pub struct Waiting(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>);

impl Future for Waiting {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

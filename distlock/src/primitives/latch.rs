//! The count-down latch: Redisson's `RCountDownLatch`.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::handle::Handle;
use crate::backend::LatchChange;
use crate::config::check_count;
use crate::error::Error;

/// A count that all clients of a server share; made by [`Client::count_down_latch`](crate::Client::count_down_latch).
/// Tasks can wait until it is 0.
///
/// This type is a handle: it is cheap to clone, does no I/O on its own, and all handles with the same key are the same
/// latch. There is no latch until a count is set, and waiting then completes at once. When the count reaches 0 the latch
/// is removed, and a new count can be set.
///
/// * **Retries are idempotent.** If a reply is lost, the change is sent again and still takes effect exactly once. For
///   this the server remembers each change in a small separate key. If the change is answered at once, the client's next
///   command removes that key; otherwise it exists for the sum of [`watchdog_timeout`](crate::Builder::watchdog_timeout)
///   and [`unavailable_after`](crate::Builder::unavailable_after): 35 s by default.
/// * **Waiters notice that a latch is gone.** A waiter that has seen a count, and then finds no latch, looks for the reason. The
///   wait completes if a mark in the server says that the latch was opened. A latch that reaches 0, or is
///   [deleted](CountDownLatch::delete), leaves such a mark for 12 s (5 s, the
///   [`response_timeout`](crate::Builder::response_timeout) and the [`unavailable_after`](crate::Builder::unavailable_after)).
///   Without a mark, the wait fails with [`Error::Lost`] if no message can have been missed, if the server was restarted or
///   replaced, or if another node of the cluster has the key by then. The latch was then removed by hand, has
///   [expired](CountDownLatch::expire_after), or was lost with the server's data. If messages were missed and the server is the
///   same, the wait completes, as in Redisson.
/// * **Redisson leaves no mark.** If it opens a latch in the moment in which its slot moves to another node of a cluster, waiters
///   that miss the message fail with [`Error::Lost`].
/// * **The optional right `+info`.** If Redisson opens a latch while this client is not connected, only the
///   run id of the server shows that nothing was lost. Without the right to read it, waiters then fail with
///   [`Error::Lost`] and [`Loss::NumberGoneUnseen`](crate::Loss::NumberGoneUnseen).
/// * **All waiters** of a client share one subscription. A wait that begins when the count is 0 completes at once. If a
///   new count is set before a waiter has seen the 0, the waiter also waits for the new count.
///
/// The latch corresponds to Redisson's `RedissonCountDownLatch` and uses the same key and channel, with two differences:
/// [deleting](CountDownLatch::delete) a latch completes its waits, and counting down does nothing if there is no latch.
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
#[doc(alias = "RCountDownLatch")]
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called and awaited"]
pub struct CountDownLatch {
    handle: Handle,
}

impl CountDownLatch {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the key, as it was written: without the client's prefix, even if it is invalid.
    ///
    /// # Examples
    /// ```
    /// let latch = distlock::Client::in_memory().count_down_latch("order:42");
    /// assert_eq!(latch.key(), "order:42");
    /// ```
    pub fn key(&self) -> &str {
        self.handle.key_text()
    }

    /// Sets after which time without use a latch that this handle sets expires: 1 ms to 45 days. Without this setting, a latch
    /// whose counting processes have died stays in the server until it is [deleted](CountDownLatch::delete), and the next run
    /// waits for it.
    ///
    /// Setting the count and each count-down by a handle with this setting move the end forward, and never to an earlier time.
    /// Waiting does not count as a use, and neither does setting a latch that exists. If another program, or a handle without
    /// this setting, has set the latch, it does not expire.
    ///
    /// A wait that is under way when the latch expires fails with [`Error::Lost`] within seconds, because the latch was not counted
    /// down. A wait that begins after that completes at once, as for a latch that was opened. A new count can then be set, and a late
    /// count-down of the earlier run would count for it: give each run a key of its own. The time must be longer than any time
    /// between two count-downs.
    ///
    /// In the server this is the time to live of the key, as after `getKeys().expire(..)` of Redisson. Redisson's count-downs do
    /// not move the end. Its threads that sleep in `await` do not learn that the latch has expired.
    ///
    /// # Errors
    /// When the handle is used, [`Error::InvalidConfig`] if the time is out of bounds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let latch = client.count_down_latch("import:parts").expire_after(Duration::from_secs(600));
    /// latch.try_set_count(2).await?;
    /// latch.count_down().await?;
    /// // The process that has the other part dies.
    /// assert!(latch.wait().await.is_err_and(|error| error.is_lost()));
    /// assert!(latch.try_set_count(2).await?);
    /// # Ok(()) }
    /// ```
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.handle.set_expire_after(time);
        self
    }

    /// Sets the count, from 1 to 2147483647, if there is no latch yet. Returns whether the count was set.
    ///
    /// # Errors
    /// * [`Error::InvalidCount`]: the count is 0 or too large.
    /// * [`Error::Unavailable`]: the server did not answer for
    ///   [`unavailable_after`](crate::Builder::unavailable_after). The change was retried for that time, and it is unknown
    ///   whether it was made.
    /// * [`Error::WrongType`]: the key holds a value that is not a number.
    /// * [`Error::Denied`]: the server refused the command.
    /// * [`Error::InvalidKey`]: the key is empty or too long.
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
        Ok(self.handle.adjust(LatchChange::TrySet(count)).await? == 1)
    }

    /// Decreases the count by one and returns what is left. Does nothing and returns 0 if there is no latch.
    ///
    /// # Errors
    /// The same as [`try_set_count`](CountDownLatch::try_set_count). After [`Error::Unavailable`] the count may have been decreased, and
    /// a second call decreases it once more, which can open the latch too early: read it by [`count`](CountDownLatch::count) before
    /// you repeat it.
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
        self.handle
            .adjust(LatchChange::CountDown)
            .await
            .map(not_below_0)
    }

    /// Returns the current count; 0 if there is no latch. It may have changed by the time it is returned.
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
        self.handle
            .adjust(LatchChange::Count)
            .await
            .map(not_below_0)
    }

    /// Removes the latch, which completes all waits for it, and returns whether there was one.
    ///
    /// Use it to repair a system by hand, not as a part of normal work.
    ///
    /// # Errors
    /// The same as [`try_set_count`](CountDownLatch::try_set_count).
    ///
    /// # Cancel safety
    /// If the future is dropped, the latch may or may not be removed.
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

    /// Waits until the count is 0, or for at most a [`timeout`](LatchWait::timeout). Await the result.
    ///
    /// A wait that finds no latch at its first look completes at once: the latch was opened, was not set yet, or has
    /// [expired](CountDownLatch::expire_after). If the work behind the latch must be done, keep a record of it and read that after
    /// the wait.
    ///
    /// # Errors
    /// When awaited, the errors of [`LatchWait`](LatchWait#errors).
    ///
    /// # Cancel safety
    /// The same as [`LatchWait`](LatchWait#cancel-safety).
    ///
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

/// A count below 0, which another program may have written, counts as 0.
fn not_below_0(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A wait for a latch; made by [`CountDownLatch::wait`]. It starts when it is awaited.
///
/// Without a [`timeout`](LatchWait::timeout) it uses the client's
/// [`default_wait`](crate::Builder::default_wait), which is unlimited unless it is set.
///
/// # Errors
/// * [`Error::Timeout`]: the count did not reach 0 in time.
/// * [`Error::Lost`]: the latch is gone from the server, and was not opened as far as this client can know. See
///   [`CountDownLatch`].
/// * [`Error::Unavailable`]: the server did not answer until the timeout, or for
///   [`unavailable_after`](crate::Builder::unavailable_after).
/// * [`Error::InvalidKey`], [`Error::InvalidWait`]: the arguments are invalid, and nothing was sent.
/// * [`Error::WrongType`]: the key holds a value that is not a number.
/// * [`Error::Denied`]: the server refused a command.
///
/// # Cancel safety
/// If the future is dropped, the wait ends and leaves nothing behind.
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
    /// Sets how long to wait, at most a year. Zero means that the count is checked once. [`Duration::MAX`] means waiting
    /// without limit.
    ///
    /// Acquisitions call the same limit [`wait`](crate::Acquire::wait).
    ///
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
        Waiting::new(async move { self.handle.until_zero(self.timeout).await })
    }
}

/// The future of a [`LatchWait`], and of an [`UntilFree`](crate::UntilFree).
///
/// # Cancel safety
/// The same as [`LatchWait`].
///
/// # Examples
/// See [`CountDownLatch::wait`].
#[must_use = "futures do nothing unless awaited"]
pub struct Waiting(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>);

impl Waiting {
    pub(super) fn new(waiting: impl Future<Output = Result<(), Error>> + Send + 'static) -> Self {
        // Boxed, because `IntoFuture` needs a type with a name.
        Self(Box::pin(waiting))
    }
}

// A panic on the way, of a waker or a subscriber of the log, ends the wait, which holds nothing.
impl UnwindSafe for Waiting {}
impl RefUnwindSafe for Waiting {}

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

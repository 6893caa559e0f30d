//! What a client is set to.

#[cfg(feature = "test-util")]
use std::fmt;
#[cfg(feature = "test-util")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "test-util")]
use crate::backend::Backend;
#[cfg(feature = "test-util")]
use crate::clock::Clock;
use crate::config::Config;

/// Settings for a [`Client`](crate::Client); each has a default, and all are checked when the client is made.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use distlock::{Client, MemoryServer};
///
/// let client = Client::builder()
///     .key_prefix("shop:")
///     .watchdog_timeout(Duration::from_secs(10))
///     .default_wait(Duration::from_secs(5))
///     .in_memory(&MemoryServer::new())?;
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until a client is made of them"]
pub struct Builder {
    pub(crate) config: Config,
    #[cfg(feature = "test-util")]
    pub(crate) decorators: Decorators,
}

impl Builder {
    /// The lease of holds without a lease of their own, renewed at every third of it: 30 s by default, at least 1 ms.
    ///
    /// It is how long a lock stays taken after its process died. Redisson's `lockWatchdogTimeout`.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .watchdog_timeout(Duration::from_secs(10))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn watchdog_timeout(mut self, lease: Duration) -> Self {
        self.config.watchdog_timeout = lease;
        self
    }

    /// A text before every key, as the server sees it; none by default.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .key_prefix("shop:")
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.key_prefix = prefix.into();
        self
    }

    /// How long acquisitions wait that say nothing themselves; without limit by default.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .default_wait(Duration::from_secs(5))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.config.default_wait = Some(wait);
        self
    }

    /// How long the watchdog renews a hold at most, of acquisitions that say nothing themselves; without limit by
    /// default. See [`Acquire::max_hold`](crate::Acquire::max_hold).
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_hold(Duration::from_secs(600))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.config.max_hold = Some(most);
        self
    }

    /// How many acquisitions of this client may wait for one key, of those that say nothing themselves; any number by
    /// default. See [`Acquire::max_waiters`](crate::Acquire::max_waiters).
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_waiters(1_000)
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.config.max_waiters.per_key = most;
        self
    }

    /// How many acquisitions of this client may wait for all keys together; any number by default. One more is refused
    /// with [`Error::Overloaded`](crate::Error::Overloaded) where it would have to wait.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_total_waiters(100_000)
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_total_waiters(mut self, most: u32) -> Self {
        self.config.max_waiters.total = most;
        self
    }

    /// How long one command may go unanswered before its outcome counts as unknown: 2 s by default, and never more
    /// than a sixth of the watchdog's lease, so that a renewal can be tried several times.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .response_timeout(Duration::from_millis(500))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = timeout;
        self
    }

    /// How long an acquisition or a release goes on without any answer before it is [`Error::Unavailable`](crate::Error::Unavailable): 5 s by
    /// default.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .unavailable_after(Duration::from_secs(2))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn unavailable_after(mut self, limit: Duration) -> Self {
        self.config.unavailable_after = limit;
        self
    }

    /// How long the place of a waiter whose process died delays those behind it, where the server keeps the queue (fair
    /// locks): 5 s by default.
    ///
    /// Each waiter gives a sign of life at every third of it, and each sign is a command: of a thousand waiters, six
    /// hundred a second at the default. One whose signs stay away for all of it, because its process stands still or
    /// its connection is broken, loses its place, and takes the last one when it comes back. So it should be several
    /// [response timeouts](Builder::response_timeout) long.
    ///
    /// Redisson's `fairLockWaitTimeout` is the same for its waiters; they give no signs, so there it is five minutes.
    /// Beside waiters of Redisson, the clocks of their machines and the server's have to agree within a third of this.
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .waiter_timeout(Duration::from_secs(30))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.config.waiter_timeout = timeout;
        self
    }

    /// How long the last token of a [fenced lock](crate::FencedLock) that is not used stays in the server: for ever by default.
    ///
    /// Set it where keys are many and used once, and where no Redisson client uses them: its tokens would begin anew
    /// at 1, below those that a store has seen. Ours go on from the server's clock.
    ///
    /// # Errors
    /// Out of 1 ms to ten years: [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made.
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub fn fencing_token_ttl(mut self, ttl: Duration) -> Self {
        self.config.fencing_token_ttl = Some(ttl);
        self
    }

    /// Sets `TCP_NODELAY` on the connection for commands; off by default, which lets concurrent commands share packets.
    ///
    /// A single task that acquires and releases gains nothing by it on one machine; over a real network it may.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder().nodelay(true).connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub fn nodelay(mut self, nodelay: bool) -> Self {
        self.config.nodelay = nodelay;
        self
    }

    /// Puts a decorator between the client and its backend: `nearest` to the server, or in front of all others.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn decorate_backend(
        mut self,
        nearest: bool,
        decorate: impl Fn(Arc<dyn Backend>, &Clock, Duration) -> Arc<dyn Backend>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let at = if nearest { 0 } else { self.decorators.0.len() };
        self.decorators.0.insert(at, Arc::new(decorate));
        self
    }
}

/// What stands between a client and its backend, the nearest to the server first.
#[cfg(feature = "test-util")]
#[derive(Clone, Default)]
pub(crate) struct Decorators(Vec<Decorator>);

/// Given the response timeout too, within which every backend answers.
#[cfg(feature = "test-util")]
type Decorator = Arc<dyn Fn(Arc<dyn Backend>, &Clock, Duration) -> Arc<dyn Backend> + Send + Sync>;

#[cfg(feature = "test-util")]
impl Decorators {
    pub(crate) fn around(
        &self,
        backend: Arc<dyn Backend>,
        clock: &Clock,
        response_timeout: Duration,
    ) -> Arc<dyn Backend> {
        let decorators = self.0.iter();
        decorators.fold(backend, |inner, decorate| {
            decorate(inner, clock, response_timeout)
        })
    }
}

#[cfg(feature = "test-util")]
impl fmt::Debug for Decorators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decorators").field(&self.0.len()).finish()
    }
}

//! The settings of waits: how long, how many, and when the log tells of them.

use std::time::Duration;

use super::Builder;

impl Builder {
    /// Sets the wait used by acquisitions that do not set one: at most a year, and unlimited by default and with
    /// [`Duration::MAX`].
    ///
    /// See [`Acquire::wait`](crate::Acquire::wait).
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .default_wait(Duration::from_secs(5))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.settings.default_wait = Some(wait);
        self
    }

    /// Sets how many acquisitions of this client may wait for one key, for acquisitions that do not set a limit;
    /// unlimited by default.
    ///
    /// An acquisition that would have to wait beyond the limit fails with
    /// [`Error::Overloaded`](crate::Error::Overloaded). See [`Acquire::max_waiters`](crate::Acquire::max_waiters).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_waiters(1_000)
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.settings.max_waiters = Some(most);
        self
    }

    /// Sets how many acquisitions of this client may wait for all keys together; unlimited by default.
    ///
    /// An acquisition that would have to wait beyond the limit fails with
    /// [`Error::Overloaded`](crate::Error::Overloaded).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_total_waiters(100_000)
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_total_waiters(mut self, most: u32) -> Self {
        self.settings.max_total_waiters = Some(most);
        self
    }

    /// Sets for how long an acquisition or a release is retried without any answer: more than 0 and at most a year, 5 s
    /// by default.
    ///
    /// After that it fails with [`Error::Unavailable`](crate::Error::Unavailable). The acquisitions that wait in line
    /// behind it in this client fail at the same time, and do not ask the server again. [`Duration::MAX`] counts as a year.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .unavailable_after(Duration::from_secs(2))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn unavailable_after(mut self, limit: Duration) -> Self {
        self.settings.unavailable_after = Some(limit);
        self
    }

    /// Sets how long a waiter of a fair lock keeps its place in the server's queue after its last sign of life: more
    /// than 0 and at most a year, 5 s by default.
    ///
    /// If the process of a waiter crashed, that waiter delays the waiters behind it by at most this time. Each waiter
    /// reports to the server each time a third of the timeout has passed, and each report is a command. With the
    /// default, a thousand waiters send 600 commands a second. If a waiter does not report for the whole timeout,
    /// because its process hangs or its connection is lost, it loses its place. When it reports again, it is last in
    /// the queue. The timeout should therefore be several [response timeouts](Builder::response_timeout) long.
    ///
    /// A waiting writer of a [read/write lock](crate::RwLock) keeps new readers out for the same time after its last sign
    /// of life.
    ///
    /// Redisson's `fairLockWaitTimeout` does the same for its own waiters. They do not report, so its default is five
    /// minutes. If a key has waiters of Redisson as well, the clocks of their machines and of the server must agree to
    /// within a third of this timeout.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .waiter_timeout(Duration::from_secs(30))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.settings.waiter_timeout = Some(timeout);
        self
    }

    /// Sets after which time a warning in the log reports a key whose acquisitions still wait: more than 0, 30 s by default.
    ///
    /// The warning names the key, how long the first waiter has waited, the line of code that acquires, the number of waiters,
    /// the holders, and the rest of the lease. The client repeats it each time the wait has doubled. If the waits of more than 16 keys
    /// become so long within 1 s, or within a tenth of this time if that is shorter, the log has a warning for each of 16 keys, those
    /// with the longest waits, and one with the number of the others. [`Duration::MAX`] turns it off.
    ///
    /// # Errors
    /// Zero is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .warn_after(Duration::from_secs(5))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn warn_after(mut self, time: Duration) -> Self {
        self.settings.warn_after = Some(time);
        self
    }
}

//! How long a request waits for its lock and holds it: the same words for every layer.

/// Gives a layer the setters of its [`Terms`](crate::settings::Terms), inside its `impl`. `make` is how the examples come
/// by a layer; each of the others says what becomes of a request, after "it".
macro_rules! setters {
    (
        make: $make:literal,
        busy: $busy:literal,
        overloaded: $overloaded:literal,
        unavailable: $unavailable:literal,
        lost: $lost:literal,
        misused: $misused:literal $(,)?
    ) => {
        /// How long a request waits for its lock at most: 10 s unless set. Zero means one full try, and no waiting.
        ///
        /// It does not matter here what the client's own `default_wait` is. After the wait the request
        #[doc = concat!($busy, ".")]
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// let client = distlock::Client::in_memory();
        #[doc = concat!("let at_once_or_not_at_all = ", $make)]
        ///     .wait(Duration::ZERO);
        /// ```
        pub fn wait(mut self, wait: Duration) -> Self {
            Arc::make_mut(&mut self.settings).terms.wait = wait;
            self
        }

        /// A fixed lease from 1 ms to ten years: no watchdog; a handler that takes longer is dropped, and its request
        #[doc = concat!($lost, ".")]
        ///
        /// Without it the lock is renewed for as long as the handler runs. With a lease that cannot be, every request
        #[doc = concat!($misused, ".")]
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// let client = distlock::Client::in_memory();
        #[doc = concat!("let at_most_a_minute = ", $make)]
        ///     .lease(Duration::from_secs(60));
        /// ```
        pub fn lease(mut self, lease: Duration) -> Self {
            Arc::make_mut(&mut self.settings).terms.lease = Some(lease);
            self
        }

        /// How long a request may hold its lock: a handler that takes longer is dropped, and its request
        #[doc = concat!($lost, ".")]
        ///
        /// Until then the lock is renewed, which is what makes it no [`lease`](Self::lease): the locks of a process that
        /// died come free much sooner. From 1 ms to ten years; as the client's own
        /// [`max_hold`](distlock::Builder::max_hold) says unless set.
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// let client = distlock::Client::in_memory();
        #[doc = concat!("let not_for_ever = ", $make)]
        ///     .max_hold(Duration::from_secs(600));
        /// ```
        pub fn max_hold(mut self, most: Duration) -> Self {
            Arc::make_mut(&mut self.settings).terms.max_hold = Some(most);
            self
        }

        /// How many requests may wait for one key: 1024 unless set. One more
        #[doc = concat!($overloaded, " at once.")]
        ///
        /// Counted are all acquisitions of the client, whatever layer or code they come from. 0: none waits for another
        /// that came before it; but one that is first in line may, where others have come to stand behind it. Where none
        /// is to wait at all, set [`wait`](Self::wait) to zero.
        ///
        /// # Examples
        /// ```
        /// let client = distlock::Client::in_memory();
        #[doc = concat!("let layer = ", $make)]
        ///     .max_waiters(16)
        ///     .max_total_waiters(10_000);
        /// ```
        pub fn max_waiters(mut self, most: u32) -> Self {
            Arc::make_mut(&mut self.settings).terms.max_waiters = most;
            self
        }

        /// How many requests of this layer and its clones may wait for whatever keys; any number unless set. One more
        #[doc = concat!($overloaded, " after one try, unless its lock is free; while the lock server is silent, it")]
        #[doc = concat!($unavailable, ".")]
        ///
        /// A request counts from when it asks for its lock, so for as long as the server's answer takes also one that
        /// need not wait.
        ///
        /// # Examples
        /// See [`max_waiters`](Self::max_waiters).
        pub fn max_total_waiters(mut self, most: u32) -> Self {
            let settings = Arc::make_mut(&mut self.settings);
            settings.terms.max_total_waiters(most);
            self
        }
    };
}

pub(crate) use setters;

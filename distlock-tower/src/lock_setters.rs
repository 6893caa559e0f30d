//! The setters of both layers: how long a request waits for its lock and holds it.

/// Makes these setters for a layer. The layers differ in what they run, in what a refused request gets, and in how the examples
/// make them. `body`: a sentence about the body of a response, if there is one. `call_site`: which line an acquisition has by default,
/// and the type of a layer.
macro_rules! lock_setters {
    (
        $layer:ident, $new:literal;
        runs: $work:literal;
        refused: $busy:literal, $lost:literal, $overloaded:literal, $too_many:literal, $unavailable:literal;
        body: $body:literal;
        call_site: $line:literal, $made:literal
    ) => {
        impl<R> $layer<R> {
            /// Sets how long a request waits for its lock at most. By default the client's
            /// [`default_wait`](distlock::Builder::default_wait) applies, and 10 s if the client has none.
            ///
            /// Zero means one complete attempt and no waiting. [`Duration::MAX`] means waiting without limit.
            #[doc = concat!("When the wait is over the request ", $busy, ".")]
            ///
            /// # Panics
            /// If the wait is more than 365 days and not `Duration::MAX`.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let fail_fast = distlock_tower::", $new)]
            ///     .wait(Duration::ZERO);
            /// ```
            #[track_caller]
            pub fn wait(mut self, wait: Duration) -> Self {
                Arc::make_mut(&mut self.settings).lock.wait = Some(wait);
                self.settings.check();
                self
            }

            /// Sets a fixed lease, from 1 ms to ten years, that no watchdog renews.
            ///
            #[doc = concat!("If the ", $work, " runs longer than the lease, it is dropped, and the request ", $lost, ".")]
            #[doc = $body]
            ///
            /// By default there is no fixed lease, and the watchdog renews the lock for as long as the
            #[doc = concat!($work, " runs.")]
            ///
            /// # Panics
            /// If the lease is outside these bounds, leaves nothing of the client's
            /// [`lease_margin`](distlock::Builder::lease_margin), or is shorter than [`hold_at_least`](Self::hold_at_least).
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let at_most_a_minute = distlock_tower::", $new)]
            ///     .lease(Duration::from_secs(60));
            /// ```
            #[track_caller]
            pub fn lease(mut self, lease: Duration) -> Self {
                Arc::make_mut(&mut self.settings).lock.lease = Some(lease);
                self.settings.check();
                self
            }

            /// Sets how long a request may hold its lock, from 1 ms to ten years. By default the client's
            /// [`max_hold`](distlock::Builder::max_hold) applies. With [`Duration::MAX`] there is no limit.
            ///
            #[doc = concat!("If the ", $work, " runs longer, it is dropped, and the request ", $lost, ".")]
            #[doc = $body]
            ///
            /// Unlike with a [`lease`](Self::lease), the watchdog renews the lock until then. If the process dies, its locks
            /// are free as soon as the watchdog's much shorter lease ends.
            ///
            /// # Panics
            /// If the time is outside these bounds and not `Duration::MAX`, or shorter than
            /// [`hold_at_least`](Self::hold_at_least).
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let bounded = distlock_tower::", $new)]
            ///     .max_hold(Duration::from_secs(600));
            /// ```
            #[track_caller]
            pub fn max_hold(mut self, max_hold: Duration) -> Self {
                Arc::make_mut(&mut self.settings).lock.max_hold = Some(max_hold);
                self.settings.check();
                self
            }

            /// Keeps the key of a request taken for at least this long, counted from the grant, also if the request is done
            /// earlier: from 1 ms to ten years. By default, and with zero, the key is free after the release.
            ///
            /// Use it against requests that come twice, such as those of a double click: with a [`wait`](Self::wait) of zero, the
            #[doc = concat!("second request ", $busy, ". The first one does not wait for the end of this time. The key also stays")]
            #[doc = concat!("taken if the ", $work, " fails or is dropped. See")]
            /// [`Acquire::hold_at_least`](distlock::Acquire::hold_at_least).
            ///
            /// # Panics
            /// If the time is outside these bounds, is longer than the [`lease`](Self::lease) or the
            /// [`max_hold`](Self::max_hold) of the layer or of its client, or if the [`mode`](Self::mode) is another one than
            /// reentrant, non-reentrant, spin or fenced. Only what was set before counts, so call it last.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let once_a_second = distlock_tower::", $new)]
            ///     .wait(Duration::ZERO)
            ///     .hold_at_least(Duration::from_secs(1));
            /// ```
            #[track_caller]
            pub fn hold_at_least(mut self, time: Duration) -> Self {
                Arc::make_mut(&mut self.settings).lock.hold_at_least = time;
                self.settings.check();
                self
            }

            /// Sets how many acquisitions may wait for one key. By default the client's
            /// [`max_waiters`](distlock::Builder::max_waiters) applies, and 1024 if the client has none.
            ///
            #[doc = concat!("A request beyond this limit ", $overloaded, " at once.")]
            /// The limit counts all acquisitions of the client that wait for the key, also those of other layers and of code
            /// without a layer.
            ///
            /// With 0, a request never waits behind another acquisition. A request that is first in line may still wait, if
            /// others have queued behind it. To turn waiting off, set [`wait`](Self::wait) to zero.
            ///
            /// # Examples
            /// ```
            /// let client = distlock::Client::in_memory();
            #[doc = concat!("let layer = distlock_tower::", $new)]
            ///     .max_waiters(16)
            ///     .max_pending_requests(10_000);
            /// ```
            pub fn max_waiters(mut self, limit: u32) -> Self {
                Arc::make_mut(&mut self.settings).lock.max_waiters = Some(limit);
                self
            }

            /// Sets how many requests of this layer may be pending at once, for all keys together: without limit by default.
            ///
            /// A request is pending from the moment it asks for its lock until the lock is granted or refused. All clones of
            /// the layer, and all their services, share one limit.
            ///
            /// A request beyond the limit makes one attempt without waiting. If its lock is free it runs; if the lock is held
            #[doc = concat!("it ", $too_many, "; if the lock server does not answer it ", $unavailable, ".")]
            ///
            /// This limit bounds what one layer keeps in memory. [`max_waiters`](Self::max_waiters) bounds the queue of a
            /// single key, and [`Builder::max_total_waiters`](distlock::Builder::max_total_waiters) all waiters of a client.
            ///
            /// # Examples
            /// See [`max_waiters`](Self::max_waiters).
            pub fn max_pending_requests(mut self, limit: u32) -> Self {
                let settings = Arc::make_mut(&mut self.settings);
                settings.lock.set_max_pending_requests(limit);
                self
            }

            /// Sets the line of the code that the acquisitions of this layer are said to be made at: in
            /// [snapshots](distlock::Client::snapshot), on the console and in the log.
            #[doc = concat!("By default it is the line of ", $line, ".")]
            ///
            /// Use it in a function that makes the layers of several routes, so that each of them has its own line.
            ///
            /// # Examples
            /// ```
            /// use std::panic::Location;
            ///
            /// #[track_caller]
            #[doc = concat!("fn exclusive(client: distlock::Client) -> distlock_tower::", $made, " {")]
            #[doc = concat!("    distlock_tower::", $new)]
            ///         .called_from(Location::caller())
            /// }
            ///
            /// let client = distlock::Client::in_memory();
            /// let imports = exclusive(client.clone());
            /// let exports = exclusive(client); // another line
            /// ```
            pub fn called_from(mut self, call_site: &'static Location<'static>) -> Self {
                Arc::make_mut(&mut self.settings).lock.call_site = call_site;
                self
            }
        }
    };
}
pub(crate) use lock_setters;

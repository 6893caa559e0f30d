//! How long a request waits for its lock and holds it.

use std::sync::Arc;
use std::time::Duration;

use super::LockLayer;

impl<R> LockLayer<R> {
    /// Sets how long a request waits for its lock at most. By default the client's
    /// [`default_wait`](distlock::Builder::default_wait) applies, and 10 s if the client has none.
    ///
    /// Zero means one complete attempt and no waiting. [`Duration::MAX`] means waiting without limit. When the wait is over the request is
    /// answered with 409 `urn:distlock:busy`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let fail_fast = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .wait(Duration::ZERO);
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lock.wait = Some(wait);
        self
    }

    /// Sets a fixed lease, from 1 ms to ten years, that no watchdog renews.
    ///
    /// A handler that runs longer than the lease is dropped, and its request is answered with 500 `urn:distlock:lost`.
    /// A response [body](crate::HoldUntil::Body) that takes longer ends in an error.
    ///
    /// By default there is no fixed lease, and the watchdog renews the lock for as long as the handler runs. With a
    /// lease outside these bounds every request is answered with 500 `urn:distlock:config`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let at_most_a_minute = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .lease(Duration::from_secs(60));
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lock.lease = Some(lease);
        self
    }

    /// Sets how long a request may hold its lock, from 1 ms to ten years. By default the client's
    /// [`max_hold`](distlock::Builder::max_hold) applies. With [`Duration::MAX`] there is no limit.
    ///
    /// A handler that runs longer is dropped, and its request is answered with 500 `urn:distlock:lost`. A response
    /// [body](crate::HoldUntil::Body) that takes longer ends in an error.
    ///
    /// Unlike with a [`lease`](Self::lease), the watchdog renews the lock until then. If the process dies, its locks
    /// are free as soon as the watchdog's much shorter lease ends.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let bounded = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .max_hold(Duration::from_secs(600));
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lock.max_hold = Some(max_hold);
        self
    }

    /// Sets how long the client may take to send the request's body while the lock is held: 30 s in all by default.
    /// [`Duration::MAX`] means no limit.
    ///
    /// Without a limit, a client that sends slowly, or not at all, keeps everyone else out. The time counts in which the
    /// handler reads the body and the client has not sent anything. The handler's own work does not count, so a handler
    /// can run for as long as it likes.
    ///
    /// When the time is over, the body ends in an error, the handler is dropped, the lock is released, and the request is
    /// answered with 408 `urn:distlock:body-timeout`. A response [body](crate::HoldUntil::Body) that is being sent ends in
    /// an error.
    ///
    /// The limit does not apply to
    ///
    /// * a gRPC request, whose body may stay open for as long as the call works; set [`max_hold`](Self::max_hold) for it;
    /// * a key [from the body](crate::Unkeyed::key_from_body), which is read before the lock is taken;
    /// * a request without a lock, and a body that is read after the release;
    /// * a body whose type the layer cannot build around another body. It knows `axum::body::Body`, and `UnsyncBoxBody`
    ///   and `BoxBody` of `http-body-util` with the error type [`BoxError`](crate::BoxError), also inside of a `Limited`.
    ///   Convert other bodies, such as hyper's `Incoming`, outside the layer. If a request announces a body of another type
    ///   and neither `max_hold` nor a [`lease`](Self::lease) is set, a warning is logged once.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let uploads = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .request_body_timeout(Duration::from_secs(300));
    /// ```
    pub fn request_body_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.settings).request_body_timeout = timeout;
        self
    }

    /// Sets how many bytes of a request's body the layer reads and throws away before it answers in place of the handler:
    /// 4 MiB by default. 0 turns this off.
    ///
    /// Many clients of HTTP/1 write their whole request before they read. If the server answers early and closes the
    /// connection, they see a broken pipe and no status, and cannot know that nothing was done. Reading takes 1 s at most.
    /// A body that announces more bytes than this is not read: for larger uploads, clients should send
    /// `Expect: 100-continue`. It has no effect for HTTP/2, where a request ends without its connection.
    ///
    /// The type of the body must be one of those that [`request_body_timeout`](Self::request_body_timeout) can bound, such
    /// as axum's body, or the key must come from the body.
    ///
    /// # Examples
    /// ```
    /// let client = distlock::Client::in_memory();
    /// let uploads = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .drain_limit(16 * 1024 * 1024);
    /// ```
    pub fn drain_limit(mut self, bytes: u64) -> Self {
        Arc::make_mut(&mut self.settings).drain_limit = bytes;
        self
    }

    /// Sets how many acquisitions may wait for one key. By default the client's
    /// [`max_waiters`](distlock::Builder::max_waiters) applies, and 1024 if the client has none.
    ///
    /// A request beyond this limit is answered with 503 `urn:distlock:overloaded` at once. The limit counts all
    /// acquisitions of the client that wait for the key, also those of other layers and of code without a layer.
    ///
    /// With 0, a request never waits behind another acquisition. A request that is first in line may still wait, if
    /// others have queued behind it. To turn waiting off, set [`wait`](Self::wait) to zero.
    ///
    /// # Examples
    /// ```
    /// let client = distlock::Client::in_memory();
    /// let layer = distlock_tower::LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
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
    /// it is answered with 503 `urn:distlock:overloaded`; if the lock server does not answer it is answered with 503
    /// `urn:distlock:unavailable`.
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
}

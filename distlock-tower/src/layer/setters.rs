//! How long a request waits for its lock and holds it.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::LockLayer;
use crate::lock_setters::lock_setters;

lock_setters! {
    LockLayer, "LockLayer::new(client).key(|_: &http::request::Parts| \"import\")";
    runs: "handler";
    refused:
        "is answered with 409 `urn:distlock:busy`",
        "is answered with 500 `urn:distlock:lost`",
        "is answered with 503 `urn:distlock:overloaded`",
        "is answered with 503 `urn:distlock:overloaded`",
        "is answered with 503 `urn:distlock:unavailable`";
    body: "A response [body](super::HoldUntil::Body) that takes longer ends in an error.";
    call_site: "the call that gave the layer its key, such as [`key`](super::Unkeyed::key)", "LockLayer"
}

impl<R> LockLayer<R> {
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
    /// The limit applies to gRPC calls too, because any client can send the content type of gRPC. In a call with a stream of
    /// the client, the pauses between its messages count. Give a layer for such calls `Duration::MAX`, and a
    /// [`max_hold`](Self::max_hold) that bounds the hold instead:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = distlock::Client::in_memory();
    /// let streaming_calls = distlock_tower::LockLayer::new(client)
    ///     .key_header("x-account")
    ///     .request_body_timeout(Duration::MAX)
    ///     .max_hold(Duration::from_secs(3600));
    /// ```
    ///
    /// The limit does not apply to
    ///
    /// * a key [from the body](crate::Unkeyed::key_from_body), which is read before the lock is taken;
    /// * a request without a lock, and a body that is read after the release;
    /// * a body whose type the layer cannot build around another body. It knows `axum::body::Body`, and `UnsyncBoxBody`
    ///   and `BoxBody` of `http-body-util` with the error type [`BoxError`](crate::BoxError), also inside of a `Limited` of
    ///   `http-body-util`, and as the [`KeyedBody`](crate::key::KeyedBody) of a lock layer outside. Convert other bodies,
    ///   such as hyper's `Incoming`, outside the layer. If a request may have a body of another type, and neither `max_hold`
    ///   nor a [`lease`](Self::lease) is set, a warning is logged once. From HTTP/2 on, each request may have one, unless its
    ///   `content-length` is 0.
    ///
    /// The body limit of `tower-http`, `RequestBodyLimitLayer`, makes bodies of a private type. Put it into a `layer` call of its
    /// own, see [where to put the layer](crate#a-body-limit).
    ///
    /// tonic's `Server::layer` gives the layer a body of tonic's own type, to which the limit does not apply. tonic's services take
    /// any body, so tower-http's `MapRequestBodyLayer` can make an axum body of it before:
    /// `Server::builder().layer(MapRequestBodyLayer::new(axum::body::Body::new)).layer(lock)`.
    ///
    /// # Panics
    /// If the timeout is zero, which would cut off each body that does not arrive in one piece.
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
    #[track_caller]
    pub fn request_body_timeout(mut self, timeout: Duration) -> Self {
        assert!(
            !timeout.is_zero(),
            "`request_body_timeout` must be more than 0; `Duration::MAX` means no limit"
        );
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
}

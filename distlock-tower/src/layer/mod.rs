//! The layer for HTTP services: `LockLayer::new` and a key function make a layer, and setters change its defaults.

mod completing;
#[cfg(not(all(feature = "json", feature = "form")))]
mod no_feature;
mod no_key;
mod setters;
mod unkeyed;

use std::fmt;
use std::sync::Arc;

use distlock::{LockSource, Mode};
use http::request::Parts;
use http::{Method, StatusCode};
use tower_layer::Layer;

pub use self::completing::{CompletingFuture, CompletingLayer, CompletingService};
pub use self::no_key::HasKey;
pub use self::unkeyed::Unkeyed;
use crate::key::Head;
use crate::respond::{IntoAnswer, Rejection};
use crate::service::LockService;
use crate::settings::{HoldUntil, ModeSetting, Settings};

/// A layer that runs each request under a distributed lock, with a key that comes from the request.
///
/// For each request with a key, the layer guarantees:
///
/// * The inner service is called only while the lock is held, and it runs inside the critical section: if the handler, or
///   a function that it calls, acquires the same key again, it re-enters the hold.
/// * Waiting is bounded. By default a request waits for at most 10 s, and at most 1024 acquisitions wait for one key.
/// * A client that sends its request's body slowly does not keep the lock held: the body may take 30 s in all by default,
///   and then the answer is 408 `urn:distlock:body-timeout`. See [`request_body_timeout`](LockLayer::request_body_timeout),
///   also for bodies of a type that cannot be timed, of which a warning is logged, and for gRPC calls with a stream of the client.
/// * The lock is released, and the release is confirmed, before the response is returned. A client that has the response
///   finds the lock free. With [`HoldUntil::Body`], this applies to the end of the response body. If another request of the process
///   waits for the key, the hold may go to that request without an answer of the server. A loss that is not known by then is told to
///   that request.
/// * If the hold is lost while the handler runs, the handler is dropped and the answer is 500 `urn:distlock:lost`.
/// * If the client disconnects, the handler is dropped and the lock is released in the background. With
///   [`run_to_completion`](LockLayer::run_to_completion) the handler continues under the lock instead.
///   Over HTTP/1.1 there are [cases](crate#when-the-hold-ends) in which the server does not notice that.
///
/// The handler finds the hold as [`Held`](crate::Held) in the request's extensions. A request that gets no lock is
/// answered with `application/problem+json`; the layer adds no errors to the service. The [crate's docs](crate#answers)
/// list all answers.
///
/// **Add it after the routes.** What is added to a router after the layer, another route or a method, runs without a lock,
/// and neither the compiler nor the log tells you. See [where to put the layer](crate#where-to-put-the-layer).
///
/// The layer is cheap to clone, and works with every service of `http::Request<B>`, for every body type `B`. Its type
/// is written `LockLayer`. If [the key comes from the body](Unkeyed::key_from_body) it is `LockLayer<WholeBody>`, and
/// the inner service gets its body as a [`KeyedBody`](crate::key::KeyedBody).
///
/// A layer is made by [`LockLayer::new`] followed by [`Unkeyed::key`] or another `key` method.
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use std::time::Duration;
/// use axum::{Router, extract::Path, routing::post};
/// use distlock::Client;
/// use distlock_tower::LockLayer;
///
/// fn one_at_a_time(client: &Client) -> LockLayer {
///     LockLayer::new(client.clone())
///         .key(|Path(id): Path<u64>| format!("order:{id}"))
///         .wait(Duration::from_secs(5))
/// }
///
/// let client = Client::in_memory();
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(async || "paid"))
///     .route_layer(one_at_a_time(&client));
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<R = Head> {
    // In an `Arc`, because axum clones the layer and calls it again for every route of every connection.
    settings: Arc<Settings>,
    reads: R,
}

impl LockLayer {
    /// Starts to build a layer that takes its locks from a [`Client`](distlock::Client) or a
    /// [`Quorum`](distlock::Quorum). A [`key`](Unkeyed::key) function completes it.
    ///
    /// # Examples
    /// See [`LockLayer`].
    #[expect(
        clippy::new_ret_no_self,
        reason = "a layer without a key would lock nothing"
    )]
    pub fn new(locks: impl Into<LockSource>) -> Unkeyed<()> {
        Unkeyed::new(locks.into())
    }
}

impl<R> LockLayer<R> {
    /// Sets the kind of lock to take: [`Mode::Reentrant`] by default.
    ///
    /// A request whose keys cannot be locked in this mode is answered with 500 `urn:distlock:config`: several keys with
    /// [`Mode::Fenced`], for example.
    ///
    /// # Panics
    /// If a [`Quorum`](distlock::Quorum) does not support the mode, or if it cannot be combined with
    /// [`hold_at_least`](LockLayer::hold_at_least).
    ///
    /// # Examples
    /// ```
    /// use distlock::Mode;
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let in_order_of_arrival = LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .mode(Mode::Fair);
    /// ```
    #[track_caller]
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.settings).mode = ModeSetting::Fixed(mode);
        self.settings.check();
        self
    }

    /// Takes a read lock for the [safe](http::Method::is_safe) methods, such as GET, HEAD and OPTIONS, and a write lock for all others.
    ///
    /// Any number of readers of a key run at the same time; a writer runs alone. The two locks are the sides of the
    /// key's [`rw_lock`](distlock::Client::rw_lock). This replaces an earlier [`mode`](LockLayer::mode).
    ///
    /// # Panics
    /// If the layer has a [`hold_at_least`](LockLayer::hold_at_least), which is not for these locks.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// use axum::{Router, extract::Path, routing::get};
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|Path(id): Path<u64>| format!("order:{id}"))
    ///     .read_write();
    /// let app: Router = Router::new()
    ///     .route("/orders/{id}", get(async || "read").put(async || "written"))
    ///     .route_layer(layer);
    /// ```
    #[track_caller]
    pub fn read_write(mut self) -> Self {
        Arc::make_mut(&mut self.settings).mode = ModeSetting::ByMethod;
        self.settings.check();
        self
    }

    /// Locks only the requests for which `condition` returns `true`. With several conditions, all must return `true`.
    ///
    /// Other requests go to the handler without a lock. The conditions run before the key function.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    /// use http::request::Parts;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|_: &Parts| "import")
    ///     .when(|parts| !parts.headers.contains_key("x-dry-run"));
    /// ```
    pub fn when<F>(mut self, condition: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        let settings = Arc::make_mut(&mut self.settings);
        settings.condition = Some(match settings.condition.take() {
            Some(earlier) => Arc::new(move |parts| earlier(parts) && condition(parts)),
            None => Arc::new(condition),
        });
        self
    }

    /// Locks only the requests with one of these methods. A `get` route also serves HEAD.
    ///
    /// This replaces the methods of an earlier call. The conditions of [`when`](LockLayer::when) apply as well. If the list is
    /// empty, no request is locked.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    /// use http::Method;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key_header("x-account")
    ///     .methods([Method::POST, Method::PUT]);
    /// ```
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = methods.into_iter().collect();
        Arc::make_mut(&mut self.settings).methods = Some(methods);
        self
    }

    /// Lets requests without the data for their key run unlocked. By default they are answered with 400.
    ///
    /// This applies to keys from a [template](Unkeyed::key_template) or a [header](Unkeyed::key_header), and to a key
    /// function that returns `None`. If the data of a template or a header is present, but empty, not UTF-8, or repeated,
    /// the answer is still 400. A key function has to tell the two cases apart: it returns `None` where the key is absent, and
    /// an `Err` with an answer where it cannot be read.
    ///
    /// Clients can bypass an optional lock by leaving the data out. Do not rely on it for correctness.
    ///
    /// # Examples
    /// See [`Unkeyed::key_header`].
    pub fn optional(mut self) -> Self {
        Arc::make_mut(&mut self.settings).optional = true;
        self
    }

    /// Sets when the hold ends: before the response is returned, by default.
    ///
    /// # Examples
    /// See [`HoldUntil`].
    pub fn hold_until(mut self, until: HoldUntil) -> Self {
        Arc::make_mut(&mut self.settings).hold_until = until;
        self
    }

    /// Lets handlers run to completion under the lock, even if their client disconnects. This is the last call on a
    /// layer.
    ///
    /// Each request is handled in a separate task. The task inherits the lock scopes, the tracing span and the
    /// [`with_client`](distlock::with_client) of the request, but no task-locals of other crates. If a client
    /// disconnects while its request waits for the lock, and the server [notices it](crate#when-the-hold-ends), the request still
    /// gives up its place in line. With [`HoldUntil::Body`], the response body is dropped with the connection, and the hold ends
    /// with it.
    ///
    /// A handler can outlive its connection and a graceful shutdown. [`Client::close`](distlock::Client::close) waits
    /// for it as long as it holds its lock. A handler that is still running when the runtime shuts down is dropped.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// use axum::{Router, extract::Path, routing::post};
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|Path(id): Path<u64>| format!("order:{id}"))
    ///     .run_to_completion();
    /// let app: Router = Router::new()
    ///     .route("/orders/{id}/pay", post(async || "paid"))
    ///     .route_layer(layer);
    /// ```
    pub fn run_to_completion(self) -> CompletingLayer<R> {
        CompletingLayer::new(self)
    }

    /// Sets the status for a lock that another owner held until the wait was over: 409 by default. Other services use
    /// 423 or 429. A gRPC client always gets ABORTED.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    /// use http::StatusCode;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .busy_status(StatusCode::LOCKED);
    /// ```
    pub fn busy_status(mut self, status: StatusCode) -> Self {
        Arc::make_mut(&mut self.settings).answers.busy_status = status;
        self
    }

    /// Replaces the answers that the [crate's docs](crate#answers) list, also for gRPC clients.
    ///
    /// The function returns anything that implements axum's `IntoResponse`, or an `http::Response` without the feature
    /// `axum`. It is not called when a key function or an extractor has answered.
    ///
    /// Do not send [`Rejection::error`] to clients: its text contains the key.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// use axum::Json;
    /// use axum::extract::Path;
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key(|Path(id): Path<u64>| format!("order:{id}"))
    ///     .on_reject(|rejection| (rejection.status(), Json("come back later")));
    /// ```
    pub fn on_reject<F, A>(mut self, answer: F) -> Self
    where
        F: Fn(Rejection) -> A + Send + Sync + 'static,
        A: IntoAnswer,
    {
        let own = Arc::new(move |rejection| answer(rejection).into_answer());
        Arc::make_mut(&mut self.settings).answers.on_reject = Some(own);
        self
    }
}

impl<S, R: Copy> Layer<S> for LockLayer<R> {
    type Service = LockService<S, R>;

    fn layer(&self, inner: S) -> LockService<S, R> {
        LockService::new(inner, Arc::clone(&self.settings), self.reads)
    }
}

impl<R> fmt::Debug for LockLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.lock.fmt_as("LockLayer", f)
    }
}

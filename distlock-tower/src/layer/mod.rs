//! The layer: its settings, and the way from a client to a finished layer.

mod completing;
mod setters;
mod unkeyed;

use std::fmt;
use std::sync::Arc;

use distlock::{LockSource, Mode};
use http::request::Parts;
use http::{Method, StatusCode};
use tower_layer::Layer;

pub use self::completing::{CompletingFuture, CompletingLayer, CompletingService};
pub use self::unkeyed::Unkeyed;
use crate::key::Head;
use crate::respond::{IntoAnswer, Rejection};
use crate::service::LockService;
use crate::settings::{HoldUntil, Modes, Settings};

/// Runs requests under a distributed lock whose key comes from the request.
///
/// Guaranteed for each request whose key function names a key:
///
/// * The inner service is called only while the lock is held, and runs inside its critical section: acquiring the same
///   key again in the handler, or in a function that it calls, enters the same hold.
/// * A crowd is bounded: without a word a request waits for 10 s at most, and 1024 of them for one key.
/// * The lock is released, and that is confirmed, before the response is returned: who has the response finds the lock
///   free. With [`HoldUntil::Body`](LockLayer::hold_until) this is so of the whole of the response's body.
/// * When the hold is lost while the handler runs, the handler is dropped and the answer is 500 `urn:distlock:lost`.
/// * When the client hangs up, the handler is dropped and the lock released in the background; but with
///   [`run_to_completion`](LockLayer::run_to_completion) the handler runs on, under the lock.
///
/// The handler finds the hold as [`Held`](crate::Held) among the request's extensions. What goes wrong is an answer of
/// type `application/problem+json`, never an error of the service; the [crate's docs](crate#answers) list them.
///
/// It is cheap to clone, and works in front of every service of `http::Request<B>`, whatever the body. Its type is written
/// `LockLayer`, but `LockLayer<WholeBody>` where [the key is from the body](Unkeyed::key_from_body), and then the service's
/// body is one that can be made of [`Bytes`](bytes::Bytes). Made by [`new`](LockLayer::new) and [`Unkeyed::key`].
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
    // One Arc: axum clones the layer, and calls it, for every route on every connection.
    settings: Arc<Settings>,
    reads: R,
}

impl LockLayer {
    /// Begins a layer whose locks are those of a [`Client`](distlock::Client) or a [`Quorum`](distlock::Quorum); a
    /// [`key`](Unkeyed::key) function makes it one.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a layer without a key would lock nothing"
    )]
    pub fn new(locks: impl Into<LockSource>) -> Unkeyed<()> {
        Unkeyed::new(locks.into())
    }
}

impl<R> LockLayer<R> {
    /// Which kind of lock to take: the [reentrant](Mode::Reentrant) one unless set.
    ///
    /// A kind that cannot be, such as [`Mode::Fenced`] for several keys at once or [`Mode::Fair`] of a
    /// [`Quorum`](distlock::Quorum), is answered 500 `urn:distlock:config`.
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
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.settings).modes = Modes::All(mode);
        self
    }

    /// GET and HEAD read, all other methods write: any number of readers of a key run at once, and a writer alone.
    ///
    /// They take the sides of the key's [`rw_lock`](distlock::Client::rw_lock), in place of one [`mode`](LockLayer::mode)
    /// for all.
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
    ///     .route("/orders/{id}", get(async || "many at once").put(async || "alone"))
    ///     .route_layer(layer);
    /// ```
    pub fn read_write(mut self) -> Self {
        Arc::make_mut(&mut self.settings).modes = Modes::ByMethod;
        self
    }

    /// Locks only for requests of which this says so; of several conditions, for those of which all say so.
    ///
    /// The others go to the handler without a lock. The function looks at each request before the key function does.
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
    pub fn when<F>(mut self, is_to_lock: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        let settings = Arc::make_mut(&mut self.settings);
        settings.when = Some(match settings.when.take() {
            Some(earlier) => Arc::new(move |parts| earlier(parts) && is_to_lock(parts)),
            None => Arc::new(is_to_lock),
        });
        self
    }

    /// Locks only for requests of these methods. A `get` route serves HEAD too.
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
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods: Vec<Method> = methods.into_iter().collect();
        self.when(move |parts| methods.contains(&parts.method))
    }

    /// A request that has not what its key is made of passes without a lock, where it would be answered 400: for keys
    /// from a [template](Unkeyed::key_template) or a [header](Unkeyed::key_header).
    ///
    /// Who leaves it out is not kept out: not for locks that anything depends on. What is there but empty, no UTF-8, or
    /// there more than once, is answered 400 as ever.
    ///
    /// # Examples
    /// See [`Unkeyed::key_header`].
    pub fn optional(mut self) -> Self {
        Arc::make_mut(&mut self.settings).optional = true;
        self
    }

    /// When the hold ends: before the response is returned, unless set otherwise.
    ///
    /// # Examples
    /// See [`HoldUntil`].
    pub fn hold_until(mut self, until: HoldUntil) -> Self {
        Arc::make_mut(&mut self.settings).hold_until = until;
        self
    }

    /// Lets handlers run to their end also when their client hangs up, and the lock be held until then: the last call.
    ///
    /// Each request is handled in a task of its own, inside the scopes, the span and the
    /// [`with_client`](distlock::with_client) around it; task-locals of others stay behind. A client that hangs up
    /// while its request waits for the lock still gives up its place in line. With [`HoldUntil::Body`] the body is the
    /// client's, and ends with it.
    ///
    /// Such a handler may outlive its connection, and with it a graceful shutdown, and
    /// [`Client::close`](distlock::Client::close) does not wait for it: a handler that is still at work when the runtime
    /// ends is dropped. Where that matters, let it carry something that the end of `main` waits for, such as the sender
    /// of a channel, whose receiver finds it closed once the last handler is done.
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
    ///     .route("/orders/{id}/pay", post(async || "paid, whoever still listens"))
    ///     .route_layer(layer);
    /// ```
    pub fn run_to_completion(self) -> CompletingLayer<R> {
        CompletingLayer::new(self)
    }

    /// The status that says 'held by another until the wait was over': 409 unless set, 423 and 429 being the others in
    /// use. A gRPC client is told ABORTED in any case.
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
        Arc::make_mut(&mut self.settings).answers.busy = status;
        self
    }

    /// Answers of one's own in place of those that the [crate's docs](crate#answers) list, also to gRPC clients.
    ///
    /// The function returns whatever axum can answer with, and without the feature `axum` an `http::Response`. It is
    /// not asked where a key function or an extractor answered by itself. What it puts into the answer is read by
    /// whoever sent the request: a [`Rejection::error`] names the key.
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

//! The layer: its settings, and the way from a client to a finished layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock::Client;
use tower_layer::Layer;

use crate::key::{ErasedKey, IntoLockKeys, KeyFn};
use crate::service::LockService;
use crate::settings::Settings;

/// How long a request waits for its lock where nothing else was said. Strangers' requests must not pile up without
/// bound, and few of them wait longer for an answer.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Runs requests under a distributed lock whose key comes from the request.
///
/// Guaranteed for each request whose key function names a key:
///
/// * The inner service is called only while the lock is held, and runs inside its critical section: acquiring the same
///   key again in the handler, or in a function that it calls, enters the same hold.
/// * The lock is released, and that is confirmed, before the response is returned: who has the response finds the lock
///   free.
/// * When the hold is lost while the handler runs, the handler is dropped and the answer is 500 `urn:distlock:lost`.
/// * When the client hangs up, the handler is dropped and the lock released in the background.
///
/// The handler finds the hold as [`Held`](crate::Held) among the request's extensions. What goes wrong is an answer of
/// type `application/problem+json`, never an error of the service; the [crate's docs](crate#answers) list them.
///
/// It has no type parameters, is cheap to clone, and works in front of every service of `http::Request<B>`, whatever the
/// body. Made by [`new`](LockLayer::new) and [`Unkeyed::key`].
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
pub struct LockLayer {
    // One Arc: axum clones the layer, and calls it, for every route on every connection.
    settings: Arc<Settings>,
}

impl LockLayer {
    /// Begins a layer whose locks are this client's; a [`key`](Unkeyed::key) function makes it one.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a layer without a key would lock nothing"
    )]
    pub fn new(client: Client) -> Unkeyed<()> {
        Unkeyed { client, state: () }
    }

    /// How long a request waits for its lock at most: 10 s unless set. Zero means one full try, and no waiting.
    ///
    /// It does not matter here what the client's own `default_wait` is. After the wait the answer is 409
    /// `urn:distlock:busy`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let at_once_or_409 = LockLayer::new(client).key(|_: &http::request::Parts| "import").wait(Duration::ZERO);
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        Arc::make_mut(&mut self.settings).wait = wait;
        self
    }

    /// A fixed lease from 1 ms to ten years: no watchdog; a handler that takes longer is dropped, and answered 500
    /// `urn:distlock:lost`.
    ///
    /// Without it the lock is renewed for as long as the handler runs. A lease that cannot be is answered 500
    /// `urn:distlock:config`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let at_most_a_minute = LockLayer::new(client)
    ///     .key(|_: &http::request::Parts| "import")
    ///     .lease(Duration::from_secs(60));
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        Arc::make_mut(&mut self.settings).lease = Some(lease);
        self
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> LockService<S> {
        LockService::new(inner, Arc::clone(&self.settings))
    }
}

impl fmt::Debug for LockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt_as("LockLayer", f)
    }
}

/// A layer that has no key function yet; made by [`LockLayer::new`].
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use axum::extract::{Path, State};
/// use distlock_tower::LockLayer;
///
/// #[derive(Clone)]
/// struct App { region: &'static str }
///
/// let client = distlock::Client::in_memory();
/// let layer = LockLayer::new(client)
///     .with_state(App { region: "eu" })
///     .key(|State(app): State<App>, Path(id): Path<u64>| format!("{}:order:{id}", app.region));
/// ```
#[derive(Clone)]
#[must_use = "this is no layer yet: give it a `.key(..)`"]
pub struct Unkeyed<S = ()> {
    client: Client,
    state: S,
}

impl<S> Unkeyed<S> {
    /// The state for extractors that want one, as the router's; before [`key`](Unkeyed::key).
    pub fn with_state<T>(self, state: T) -> Unkeyed<T> {
        Unkeyed {
            client: self.client,
            state,
        }
    }

    /// Which key a request locks: a function over extractors, `&http::request::Parts` or `&http::Request<()>`.
    ///
    /// [`KeyFn`] tells what it may look at, [`IntoLockKeys`] what it may return. It sees the request before the handler
    /// does and takes nothing away from it; the body it cannot see.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    /// use http::request::Parts;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key(|parts: &Parts| {
    ///     let account = parts.headers.get("x-account")?.to_str().ok()?;
    ///     Some(format!("account:{account}")) // without the header: no lock
    /// });
    /// ```
    pub fn key<F, M>(self, key: F) -> LockLayer
    where
        F: KeyFn<M, S>,
        F::Keys: IntoLockKeys,
        S: Send + Sync + 'static,
    {
        LockLayer {
            settings: Arc::new(Settings {
                client: self.client,
                key: ErasedKey::new(key, self.state),
                wait: DEFAULT_WAIT,
                lease: None,
            }),
        }
    }
}

impl<S> fmt::Debug for Unkeyed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unkeyed")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

//! A layer without a key function, and the methods that give it one.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use bytes::Bytes;
use distlock::LockSource;
use http::header::HeaderName;
use http::request::Parts;
#[cfg(any(feature = "json", feature = "form"))]
use serde::de::DeserializeOwned;

use super::LockLayer;
#[cfg(any(feature = "json", feature = "form"))]
use crate::key::ParsedKeyFn;
use crate::key::{BodyKeyFn, ErasedKey, Head, IntoLockKeys, KeyFn, Template, WholeBody};
use crate::settings::{LockSettings, Settings};

/// A layer that has no key function yet. Made by [`LockLayer::new`].
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
#[must_use = "this is not a layer yet: call `.key(..)`"]
pub struct Unkeyed<S = ()> {
    source: LockSource,
    state: S,
}

impl Unkeyed<()> {
    pub(super) fn new(source: LockSource) -> Self {
        Self { source, state: () }
    }
}

impl<S> Unkeyed<S> {
    /// Sets the state for extractors that need one, such as the router's state. Call it before [`key`](Unkeyed::key).
    ///
    /// # Examples
    /// See [`Unkeyed`].
    pub fn with_state<T>(self, state: T) -> Unkeyed<T> {
        Unkeyed {
            source: self.source,
            state,
        }
    }

    /// Sets the function that returns the key of a request. It takes extractors, `&http::request::Parts` or
    /// `&http::Request<()>`.
    ///
    /// [`KeyFn`] describes its arguments, and [`IntoLockKeys`] what it can return. It runs before the handler. The
    /// handler still gets the whole request. The function cannot read the body.
    ///
    /// The line of this call, or of another `key` method, is the line of the layer's acquisitions in the log, in snapshots and on the
    /// console, unless [`called_from`](LockLayer::called_from) sets another one.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    /// use http::request::Parts;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key(|parts: &Parts| {
    ///     let account = parts.headers.get("x-account")?.to_str().ok()?;
    ///     Some(format!("account:{account}")) // without a readable header: 400
    /// });
    /// ```
    #[track_caller]
    pub fn key<F, M>(self, key: F) -> LockLayer
    where
        F: KeyFn<M, S>,
        F::Keys: IntoLockKeys,
        S: Send + Sync + 'static,
    {
        LockLayer {
            settings: Arc::new(Settings::new(
                LockSettings::new(self.source, Location::caller()),
                ErasedKey::new(key, self.state),
            )),
            reads: Head,
        }
    }

    /// Sets the key as a [`Template`] that is a literal in the code: `"article:<path.slug>:<header.x-tenant>"`.
    ///
    /// The rendered text is the key. If the handler parses the value of a placeholder, several texts can mean the same
    /// resource, such as `/orders/42` and `/orders/042`. Use the parsed value of an extractor in that case, with
    /// [`key`](Unkeyed::key).
    ///
    /// # Panics
    /// If the text is not a valid template. [Parse](Template) a template that comes from a configuration, and pass it
    /// to [`key`](Unkeyed::key).
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key_template("account:<header.x-account>");
    /// ```
    #[track_caller]
    pub fn key_template(self, template: &str) -> LockLayer {
        match template.parse::<Template>() {
            Ok(template) => self.without_state().key(template),
            Err(error) => panic!("{error}: {template:?}"),
        }
    }

    /// Sets the key to a header's name and value. For `Idempotency-Key: 8e03978e-40d5` it is
    /// `idempotency-key:8e03978e-40d5`.
    ///
    /// A request without the header is answered with 400, or runs unlocked if the key is
    /// [optional](LockLayer::optional). If the header is empty, not UTF-8, or repeated, the answer is always 400.
    ///
    /// Clients choose the value, so two clients with the same value block each other. To keep them apart, add the
    /// authenticated client to the key with [`key_template`](Unkeyed::key_template) or [`key`](Unkeyed::key).
    ///
    /// With `idempotency-key` and no wait, a request that is sent again while the first one runs is answered with 409.
    /// The layer does not store responses: a request that is sent again later finds the lock free.
    ///
    /// # Panics
    /// If `name` is not a valid header name.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock_tower::LockLayer;
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key_header("idempotency-key").wait(Duration::ZERO).optional();
    /// ```
    #[track_caller]
    pub fn key_header<H>(self, name: H) -> LockLayer
    where
        H: TryInto<HeaderName>,
        H::Error: fmt::Display,
    {
        match name.try_into() {
            Ok(name) => self.without_state().key(Template::of_header(name)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets a key function that reads the head and the whole body of a request.
    ///
    /// The body is read to its end before the request waits for the lock, so a client that sends slowly does not delay
    /// others. The handler then gets the body from memory, without its trailers, as a
    /// [`KeyedBody`](crate::key::KeyedBody). Reading has no time limit here, because no lock is held; put a timeout outside
    /// the layer.
    ///
    /// A body of more than `limit` bytes is answered with 413, as is a body that exceeds a limit outside the layer. A body
    /// with a `content-encoding` other than `identity` is answered with 415: put a layer that decompresses outside. If
    /// reading fails otherwise, the answer is 400.
    ///
    /// The function returns the same types as with [`key`](Unkeyed::key). `None` means that the request names no key. A
    /// body that the function cannot read is an `Err`: with `None` and [`optional`](LockLayer::optional), a client could
    /// choose to run without the lock. For JSON and forms, `key_json` and
    /// `key_form` do this.
    ///
    /// Consider the attribute `#[distributed_lock(key = "order:<order.id>")]` on the function that the handler calls: it
    /// can use the parsed body.
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use axum::{Json, Router, body::Body, http::StatusCode, routing::post};
    /// use distlock_tower::{Held, LockLayer};
    /// use http::Request;
    /// use tower::ServiceExt;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { id: u64 }
    ///
    /// async fn place(held: Held, Json(order): Json<Order>) -> String {
    ///     format!("{} is placed under {}", order.id, held.key())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client).key_from_body(16 * 1024, |_, body| match serde_json::from_slice(body) {
    ///     Ok(Order { id }) => Ok(format!("order:{id}")),
    ///     Err(_) => Err(StatusCode::BAD_REQUEST),
    /// });
    /// let app: Router = Router::new().route("/orders", post(place)).route_layer(layer);
    /// let request = Request::post("/orders").header("content-type", "application/json");
    /// let response = app.oneshot(request.body(Body::from(r#"{"id": 42}"#)).unwrap()).await.unwrap();
    /// let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
    /// assert_eq!(body, "42 is placed under order:42");
    /// # }
    /// ```
    #[track_caller]
    pub fn key_from_body<F, K>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        F: Fn(&Parts, &Bytes) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        self.of_body(limit, BodyKeyFn(key))
    }

    /// Sets a key function that gets the body of a request as a value, parsed from JSON.
    ///
    /// The body is read as by [`key_from_body`](Unkeyed::key_from_body): it is limited to `limit` bytes, and the handler
    /// gets it again. The handler may read other fields of it.
    ///
    /// | the request | the answer |
    /// | --- | --- |
    /// | has a body of more than `limit` bytes | 413 |
    /// | has a content type other than `application/json` or `application/..+json`, another charset than UTF-8, or a `content-encoding` | 415 |
    /// | has a body that is no JSON of this type | 400 |
    /// | has neither a body nor a content type, or the function returns `None` | 400, or the handler's own if the layer is [optional](LockLayer::optional) |
    ///
    /// # Examples
    #[cfg_attr(feature = "axum", doc = "```")]
    #[cfg_attr(not(feature = "axum"), doc = "```ignore")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use axum::{Json, Router, body::Body, routing::post};
    /// use distlock_tower::{Held, LockLayer};
    /// use http::Request;
    /// use tower::ServiceExt;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Pick { article: u64 }
    ///
    /// async fn pick(held: Held, Json(pick): Json<Pick>) -> String {
    ///     format!("{} is picked under {}", pick.article, held.key())
    /// }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key_json(16 * 1024, |pick: Pick| format!("article:{}", pick.article));
    /// let app: Router = Router::new().route("/picks", post(pick)).route_layer(layer);
    /// let request = Request::post("/picks").header("content-type", "application/json");
    /// let response = app.oneshot(request.body(Body::from(r#"{"article": 7}"#)).unwrap()).await.unwrap();
    /// let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
    /// assert_eq!(body, "7 is picked under article:7");
    /// # }
    /// ```
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    #[track_caller]
    pub fn key_json<T, F, K>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        T: DeserializeOwned + 'static,
        F: Fn(T) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        self.of_body(limit, ParsedKeyFn::json(key))
    }

    /// Sets a key function that gets the body of a request as a value, parsed from a form
    /// (`application/x-www-form-urlencoded`).
    ///
    /// Everything else is as for `key_json`.
    ///
    /// # Examples
    /// ```
    /// use distlock_tower::LockLayer;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Pick { article: u64 }
    ///
    /// let client = distlock::Client::in_memory();
    /// let layer = LockLayer::new(client)
    ///     .key_form(16 * 1024, |pick: Pick| format!("article:{}", pick.article));
    /// ```
    #[cfg(feature = "form")]
    #[cfg_attr(docsrs, doc(cfg(feature = "form")))]
    #[track_caller]
    pub fn key_form<T, F, K>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        T: DeserializeOwned + 'static,
        F: Fn(T) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        self.of_body(limit, ParsedKeyFn::form(key))
    }

    #[track_caller]
    fn of_body<F, M>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        F: KeyFn<M, ()>,
        F::Keys: IntoLockKeys,
    {
        let LockLayer { settings, .. } = self.without_state().key(key);
        let reads = WholeBody { limit };
        LockLayer { settings, reads }
    }

    fn without_state(self) -> Unkeyed {
        self.with_state(())
    }
}

impl<S> fmt::Debug for Unkeyed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unkeyed")
            .field("locks", &self.source)
            .finish_non_exhaustive()
    }
}

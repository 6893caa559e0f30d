//! A layer that does not know its keys yet, and the ways to name them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use distlock::LockSource;
use http::header::HeaderName;
use http::request::Parts;

use super::LockLayer;
use crate::key::{ErasedKey, Head, IntoLockKeys, KeyFn, OfBody, Template, WholeBody};
use crate::settings::Settings;

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
    locks: LockSource,
    state: S,
}

impl Unkeyed<()> {
    pub(super) fn new(locks: LockSource) -> Self {
        Self { locks, state: () }
    }
}

impl<S> Unkeyed<S> {
    /// The state for extractors that want one, as the router's; before [`key`](Unkeyed::key).
    pub fn with_state<T>(self, state: T) -> Unkeyed<T> {
        Unkeyed {
            locks: self.locks,
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
    ///     Some(format!("account:{account}")) // without the header, or where it is no text: no lock
    /// });
    /// ```
    pub fn key<F, M>(self, key: F) -> LockLayer
    where
        F: KeyFn<M, S>,
        F::Keys: IntoLockKeys,
        S: Send + Sync + 'static,
    {
        LockLayer {
            settings: Arc::new(Settings::new(self.locks, ErasedKey::new(key, self.state))),
            reads: Head,
        }
    }

    /// Which key a request locks, as a [`Template`] that stands in the code: `"article:<path.slug>:<header.x-tenant>"`.
    ///
    /// The text is the key. Where the handler parses what a placeholder stands for, as in `/orders/042`, one resource has
    /// several: take the parsed value from an extractor then, with [`key`](Unkeyed::key).
    ///
    /// # Panics
    /// Where the text is no template. One that comes from elsewhere is better [parsed](Template) first, and given to
    /// [`key`](Unkeyed::key).
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

    /// The key is a header's name and value: `idempotency-key:8e03978e-40d5` of `Idempotency-Key: 8e03978e-40d5`.
    ///
    /// A request that does not have the header is answered 400, or passes without a lock where the key is
    /// [optional](LockLayer::optional). One that has it more than once, empty, or not as UTF-8, is answered 400 in any
    /// case. Strangers choose the value: where they are not to stand in each other's way,
    /// [`key_template`](Unkeyed::key_template) adds who they are.
    ///
    /// With `idempotency-key` this answers 409 to a request that comes again while the first one is at work. It does not
    /// remember what was answered: a request that comes after that finds the lock free, and needs a stored result.
    ///
    /// # Panics
    /// Where this is no name of a header.
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

    /// Which key a request locks, by its head and its whole body.
    ///
    /// The body is read to its end before the lock is waited for, so that a client that sends slowly holds up nobody, and
    /// given to the handler from memory, without trailers if it had any. One of more than `limit` bytes is answered 413, as
    /// is one that a limit outside cuts, and a broken one 400. How long the reading may take is for a timeout outside to say.
    ///
    /// What the function returns is as for [`key`](Unkeyed::key). Often there is a better way: an attribute,
    /// `#[distributed_lock(key = "order:<order.id>")]`, on the function that the handler calls has the parsed body at
    /// hand.
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
    pub fn key_from_body<F, K>(self, limit: usize, key: F) -> LockLayer<WholeBody>
    where
        F: Fn(&Parts, &Bytes) -> K + Send + Sync + 'static,
        K: IntoLockKeys,
    {
        let LockLayer { settings, .. } = self.without_state().key(OfBody(key));
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
            .field("locks", &self.locks)
            .finish_non_exhaustive()
    }
}

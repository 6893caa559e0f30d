//! Key functions: what they read from a request, and what they can return.
//!
//! The type of a key function is erased, together with its state, when the layer is made. The layer therefore needs no
//! type parameter for it. Key functions over a request's head are in `parts.rs`, over axum's extractors in `axum.rs`,
//! over the body in `body.rs`, over what a body is parsed to in `parsed.rs`; templates are in `template/`.

#[cfg(feature = "axum")]
mod axum;
mod body;
mod error;
mod foreign;
#[cfg(any(feature = "json", feature = "form"))]
mod parsed;
mod parts;
mod template;

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::Response;
use http::request::Parts;
use smallvec::{SmallVec, smallvec};

pub(crate) use self::body::{BodyKeyFn, BufferedBody};
pub use self::body::{Head, WholeBody};
pub(crate) use self::error::{BodyError, KeyError};
#[cfg(any(feature = "json", feature = "form"))]
pub(crate) use self::parsed::ParsedKeyFn;
pub use self::parts::{ViaParts, ViaRequest};
pub use self::template::{Template, TemplateError, ViaTemplate};
use crate::error::BoxError;
pub use crate::request_body::KeyedBody;
use crate::respond::{self, Answer};

/// What a [`KeyFn`] returns: a value that is ready, or a future. Only extractors need a future, and its allocation.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "a future has none")]
pub enum KeyFuture<'a, T> {
    Ready(T),
    Boxed(BoxFuture<'a, T>),
}

/// The keys of a request. Most have one.
pub(crate) type Keys = SmallVec<[String; 1]>;

/// A function that returns the key of a request.
///
/// It is implemented for functions and closures that are `Send + Sync + 'static`, not `async`, and take one of:
///
/// * one to eight axum extractors (`FromRequestParts`), with their types written out; this needs the default feature
///   `axum`;
/// * `&http::request::Parts`;
/// * `&http::Request<()>`: the request without its body.
///
/// [`Template`] implements it too. For a key from the body, use `Unkeyed::key_json`, `Unkeyed::key_form` or
/// [`Unkeyed::key_from_body`](crate::Unkeyed::key_from_body).
///
/// The return type must implement [`IntoLockKeys`]. The parameter `M` distinguishes the forms and is always inferred.
/// `S` is the state from [`Unkeyed::with_state`](crate::Unkeyed::with_state). This trait is not meant to be implemented
/// in other crates.
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use axum::extract::{Path, Query};
/// use distlock::Client;
/// use distlock_tower::LockLayer;
/// use http::{StatusCode, request::Parts};
///
/// #[derive(serde::Deserialize)]
/// struct Tenant { tenant: String }
///
/// let client = Client::in_memory();
/// let extractors = LockLayer::new(client.clone())
///     .key(|Path(id): Path<u64>, Query(q): Query<Tenant>| format!("order:{}:{id}", q.tenant));
/// let head = LockLayer::new(client.clone()).key(|parts: &Parts| {
///     let account = parts.headers.get("x-account").and_then(|account| account.to_str().ok());
///     account.map(|account| format!("account:{account}")).ok_or(StatusCode::BAD_REQUEST)
/// });
/// let request = LockLayer::new(client).key(|_: &http::Request<()>| "nightly-report");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key function for a `LockLayer` with the state `{S}`",
    label = "not a key function",
    note = "a key function takes 1 to 8 extractors, or `&http::request::Parts`, or `&http::Request<()>`, with the types of its arguments written out: `|Path(id): Path<u64>| format!(\"order:{{id}}\")`",
    note = "a text is no key function: one key for all requests is `.key(|_: &http::request::Parts| \"import\")`, and a text with placeholders is `.key_template(\"order:<path.id>\")`",
    note = "a key from the body: in place of `.key(|Json(pick): Json<Pick>| ..)` write `.key_json(16 * 1024, |pick: Pick| ..)`, in place of `Form` write `.key_form(..)`, and for other bodies `.key_from_body(..)`; the number is the most bytes of a body",
    note = "every extractor must implement `FromRequestParts<{S}>` of axum 0.8 and needs the feature `axum`; `Json`, `Form`, `Bytes` and others that read the body do not implement it, and extractors of axum 0.7 are no extractors here",
    note = "`State<T>` needs `.with_state(..)` before `.key(..)`",
    note = "it must be `Send + Sync + 'static` and not `async`"
)]
pub trait KeyFn<M, S>: Send + Sync + 'static {
    /// What the function returns.
    type Keys;

    /// Calls the function with the parts of the request that it takes, and converts what it returns. An error is the
    /// rejection of an extractor.
    #[doc(hidden)]
    fn keys<'a, T: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        state: &'a S,
        into: fn(Result<Self::Keys, LockKeys>) -> T,
    ) -> KeyFuture<'a, T>;
}

/// The return types of a key function: one key, several keys, no key, or an answer.
///
/// * `String`, `&'static str`, `Cow<'static, str>`: one key.
/// * `Vec` and arrays of these: several keys as one lock (a [multi-lock](distlock::MultiLock)). Either all are acquired or
///   none. Duplicates are removed. An empty list, or more than 256 different keys, is answered with 400.
/// * `Option<_>`: `None` is answered with 400. If the layer is [optional](crate::LockLayer::optional), the request runs
///   unlocked instead.
/// * `Result<_, E>` with `E: IntoResponse` (without the feature `axum`: an `http::Response<B>` with a body of `Bytes`): `Err` is
///   the answer, and the handler is not called.
///
/// A key has 1 to 512 bytes and no control characters. Other keys are answered with 400.
///
/// Start each key with a text of your own, as in `order:42`, or give the client a
/// [`key_prefix`](distlock::Builder::key_prefix). Otherwise a client can name any key of the lock server, also one that
/// holds other data. Such a request is answered with 400, and the data is not changed.
///
/// Keys are used as they are, without escaping. If a key joins two values that clients choose, separate them with a
/// character that neither value can contain.
///
/// The text is the key. A handler that parses a number treats `/orders/42`, `/orders/042` and `/orders/4%32` as the
/// same order, but the raw paths are three keys. If the handler parses a value, use the parsed value of an extractor in
/// the key.
///
/// # Examples
/// A type that can be returned from key functions, implemented with the help of `String`:
/// ```
/// use distlock_tower::{IntoLockKeys, LockKeys};
///
/// struct Order(u64);
///
/// impl IntoLockKeys for Order {
///     fn into_lock_keys(self) -> LockKeys {
///         format!("order:{}", self.0).into_lock_keys()
///     }
/// }
///
/// let client = distlock::Client::in_memory();
/// let layer = distlock_tower::LockLayer::new(client).key(|_: &http::request::Parts| Order(42));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as lock keys",
    label = "a key function cannot return `{Self}`",
    note = "return `String`, `&'static str`, a `Vec` or an array of them, an `Option` of these (`None`: 400, or no lock if the layer is `optional`), or a `Result` of these whose error is an answer (`impl IntoResponse`)",
    note = "a key function is not `async`: write an extractor for work that must be awaited"
)]
pub trait IntoLockKeys {
    /// Converts the value into keys, no key, or an answer.
    ///
    /// # Examples
    /// See [`IntoLockKeys`].
    fn into_lock_keys(self) -> LockKeys;
}

/// The result of a key function: keys, no key, or an answer. Made by [`IntoLockKeys`].
///
/// # Examples
/// See [`IntoLockKeys`].
pub struct LockKeys(pub(crate) Result<Keys, NoKeys>);

/// Why a key function has returned no keys.
pub(crate) enum NoKeys {
    Error(KeyError),
    /// Boxed: it is rare, and the largest.
    Answer(Box<Answer>),
}

impl From<KeyError> for NoKeys {
    fn from(error: KeyError) -> Self {
        Self::Error(error)
    }
}

impl LockKeys {
    #[cfg(feature = "axum")]
    fn answer(answer: impl ::axum::response::IntoResponse) -> Self {
        Self::boxed(answer.into_response())
    }

    fn boxed<B>(answer: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Err(NoKeys::Answer(Box::new(respond::boxed(answer)))))
    }
}

impl fmt::Debug for LockKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(keys) => f.debug_tuple("LockKeys::Keys").field(keys).finish(),
            Err(NoKeys::Error(error)) => {
                let error = error.to_string();
                f.debug_tuple("LockKeys::Error").field(&error).finish()
            }
            Err(NoKeys::Answer(answer)) => {
                let status = answer.status();
                f.debug_tuple("LockKeys::Answer").field(&status).finish()
            }
        }
    }
}

/// The longest key in bytes. Clients influence keys, and each key is stored in the lock server and written to the log.
const MAX_KEY_BYTES: usize = 512;

/// The most keys that one request locks. Each key costs the lock server some work, and clients may choose their number.
const MAX_KEYS: usize = 256;

/// Checks the keys and removes duplicates.
pub(crate) fn distinct(mut keys: Keys) -> Result<Keys, KeyError> {
    let is_invalid = |key: &&String| {
        key.is_empty() || key.len() > MAX_KEY_BYTES || key.contains(char::is_control)
    };
    if let Some(key) = keys.iter().find(is_invalid) {
        let key = key.clone();
        return Err(KeyError::Invalid { key });
    }
    if keys.len() > 1 {
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(key.clone()));
    }
    match keys.len() {
        0 => Err(KeyError::Empty),
        1..=MAX_KEYS => Ok(keys),
        keys => Err(KeyError::TooMany { keys }),
    }
}

impl IntoLockKeys for LockKeys {
    fn into_lock_keys(self) -> LockKeys {
        self
    }
}

macro_rules! one_key {
    ($($text:ty),+) => {$(
        impl IntoLockKeys for $text {
            fn into_lock_keys(self) -> LockKeys {
                LockKeys(Ok(smallvec![self.into()]))
            }
        }
    )+};
}

one_key!(String, &'static str, Cow<'static, str>);

impl<T: Into<String>> IntoLockKeys for Vec<T> {
    fn into_lock_keys(self) -> LockKeys {
        LockKeys(Ok(self.into_iter().map(Into::into).collect()))
    }
}

impl<T: Into<String>, const N: usize> IntoLockKeys for [T; N] {
    fn into_lock_keys(self) -> LockKeys {
        LockKeys(Ok(self.into_iter().map(Into::into).collect()))
    }
}

impl<T: IntoLockKeys> IntoLockKeys for Option<T> {
    fn into_lock_keys(self) -> LockKeys {
        self.map_or_else(|| LockKeys(Err(KeyError::NoKey.into())), T::into_lock_keys)
    }
}

#[cfg(not(feature = "axum"))]
impl<T: IntoLockKeys, B> IntoLockKeys for Result<T, Response<B>>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn into_lock_keys(self) -> LockKeys {
        self.map_or_else(LockKeys::boxed, T::into_lock_keys)
    }
}

/// A key function with its state, without their types.
#[derive(Clone)]
pub(crate) struct ErasedKey {
    key_and_state: Arc<Erased>,
    /// [`outcome`] of their types. A function, because an object would need the form of the key function, `M`, to be
    /// `'static`.
    outcome: for<'a> fn(&'a Erased, &'a mut Parts) -> KeyFuture<'a, Result<Keys, NoKeys>>,
}

type Erased = dyn Any + Send + Sync;

fn outcome<'a, F, M, S>(
    erased: &'a Erased,
    parts: &'a mut Parts,
) -> KeyFuture<'a, Result<Keys, NoKeys>>
where
    F: KeyFn<M, S>,
    F::Keys: IntoLockKeys,
    S: Send + Sync + 'static,
{
    let Some((key, state)) = erased.downcast_ref::<(F, S)>() else {
        // `ErasedKey::new` puts nothing else in. Without keys, the request would be refused.
        return KeyFuture::Ready(Ok(Keys::new()));
    };
    key.keys(parts, state, |keys| {
        keys.map_or_else(|answer| answer, F::Keys::into_lock_keys).0
    })
}

impl ErasedKey {
    pub(crate) fn new<F, M, S>(key: F, state: S) -> Self
    where
        F: KeyFn<M, S>,
        F::Keys: IntoLockKeys,
        S: Send + Sync + 'static,
    {
        Self {
            key_and_state: Arc::new((key, state)),
            outcome: outcome::<F, M, S>,
        }
    }

    pub(crate) async fn of(&self, parts: &mut Parts) -> Result<Keys, NoKeys> {
        match (self.outcome)(&*self.key_and_state, parts) {
            KeyFuture::Ready(outcome) => outcome,
            KeyFuture::Boxed(outcome) => outcome.await,
        }
    }
}

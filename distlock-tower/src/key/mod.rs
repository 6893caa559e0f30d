//! How keys come from requests: functions over a request's head, and what they may return.
//!
//! A key function is erased together with its state when the layer is made, so that the layer has no type parameters.
//! Reading parts of a request is in `parts.rs`, reading it with axum's extractors in `axum.rs`, its body in `body.rs`,
//! filling in a template in `template.rs`.

#[cfg(feature = "axum")]
mod axum;
mod body;
mod parts;
mod template;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::Response;
use http::request::Parts;

pub use self::body::{Head, WholeBody};
pub(crate) use self::body::{OfBody, Read};
pub use self::parts::{ViaParts, ViaRequest};
pub use self::template::{Template, TemplateError, ViaTemplate};
use crate::error::BoxError;
use crate::respond::{self, Answer, Reason, Rejection};

/// What [`KeyFn`] works out.
#[doc(hidden)]
pub type KeyFuture<'a, K> = BoxFuture<'a, Result<K, LockKeys>>;

/// A function that says which key a request locks.
///
/// Implemented for functions and closures, `Send + Sync + 'static` and not `async`, whose arguments are one of
///
/// * one to eight axum extractors (`FromRequestParts`; the feature `axum`, on by default), with their types written out;
/// * `&http::request::Parts`;
/// * `&http::Request<()>`: the request without its body, which has not been read yet.
///
/// So does [`Template`], which is no function but a text with placeholders. For a key from the body there is
/// [`Unkeyed::key_from_body`](crate::Unkeyed::key_from_body).
///
/// They return what implements [`IntoLockKeys`]. `M` tells the forms apart and is always inferred; `S` is the state given
/// by [`Unkeyed::with_state`](crate::Unkeyed::with_state). Not meant to be implemented elsewhere.
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
    message = "`{Self}` is no key function for a `LockLayer` with the state `{S}`",
    label = "cannot work out keys from a request",
    note = "a key function takes 1 to 8 extractors, or `&http::request::Parts`, or `&http::Request<()>`, with the types of its arguments written out: `|Path(id): Path<u64>| format!(\"order:{{id}}\")`",
    note = "every extractor must implement `FromRequestParts<{S}>`: `Json`, `Form`, `Bytes` and other readers of the body do not, and extractors need the feature `axum`",
    note = "`State<T>` needs `.with_state(..)` before `.key(..)`",
    note = "it must be `Send + Sync + 'static` and not `async`"
)]
pub trait KeyFn<M, S>: Send + Sync + 'static {
    /// What the function returns.
    type Keys;

    /// Calls the function with what it wants of the request; an error is the answer to a request that lacks it.
    #[doc(hidden)]
    fn keys<'a>(&'a self, parts: &'a mut Parts, state: &'a S) -> KeyFuture<'a, Self::Keys>;
}

/// What a key function may return: one key, several, none, or an answer.
///
/// * `String`, `&'static str`, `Cow<'static, str>`: that key.
/// * `Vec` and arrays of those: those keys, each once, all of them or none (a [multi-lock](distlock::MultiLock)). A list
///   without keys, and one of more than 256, is answered 400.
/// * `Option<_>`: with `None` the request passes without a lock.
/// * `Result<_, E>` with `E: IntoResponse` (without the feature `axum`: `E = http::Response<Full<Bytes>>`): `Err` is the
///   answer, and the handler is not called.
///
/// A key has 1 to 512 bytes and no control characters; a request with another one is answered 400. Keys are
/// used as they are: nothing is escaped, so two parts that a stranger chooses want a separator that neither can have.
///
/// The text is the key: `/orders/42`, `/orders/042` and `/orders/4%32` name one order to a handler that parses the number,
/// and are three keys where the path is taken as it came. Where the handler parses, take the parsed value from an
/// extractor.
///
/// # Examples
/// A type of one's own, by way of another:
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
    message = "`{Self}` names no lock keys",
    label = "a key function cannot return `{Self}`",
    note = "return `String`, `&'static str`, a `Vec` or an array of them, an `Option` of these (`None`: no lock), or a `Result` of these whose error is an answer (`impl IntoResponse`)",
    note = "a key function is not `async`: what must be awaited belongs into an extractor of its own"
)]
pub trait IntoLockKeys {
    /// The keys, or what stands in their place.
    fn into_lock_keys(self) -> LockKeys;
}

/// Keys, none, or an answer in their place; made by [`IntoLockKeys`].
pub struct LockKeys(pub(crate) Named);

pub(crate) enum Named {
    Nothing,
    Keys(Vec<String>),
    /// A part of the request that a key is made of is not there.
    Missing(String),
    /// It is there, but empty, no UTF-8 or more than once: no reason to do without a key.
    Unclear(String),
    Answer(Answer),
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
        Self(Named::Answer(respond::boxed(answer)))
    }
}

impl fmt::Debug for LockKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Named::Nothing => f.write_str("LockKeys::Nothing"),
            Named::Keys(keys) => f.debug_tuple("LockKeys::Keys").field(keys).finish(),
            Named::Missing(what) => f.debug_tuple("LockKeys::Missing").field(what).finish(),
            Named::Unclear(what) => f.debug_tuple("LockKeys::Unclear").field(what).finish(),
            Named::Answer(answer) => {
                let status = answer.status();
                f.debug_tuple("LockKeys::Answer").field(&status).finish()
            }
        }
    }
}

/// Longest key in bytes that is taken from a request: keys come from strangers, and go into the server and the log.
const MAX_KEY_BYTES: usize = 512;

/// Most keys that one request locks: each costs the server some work, and a stranger may have chosen how many.
const MAX_KEYS: usize = 256;

/// The keys to lock, each once.
pub(crate) fn distinct(mut keys: Vec<String>) -> Result<Vec<String>, BadKeys> {
    let unfit = |key: &&String| {
        key.is_empty() || key.len() > MAX_KEY_BYTES || key.contains(char::is_control)
    };
    if let Some(key) = keys.iter().find(unfit) {
        let key = key.clone();
        return Err(BadKeys::Unfit { key });
    }
    let mut seen = HashSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    match keys.len() {
        0 => Err(BadKeys::Empty),
        1..=MAX_KEYS => Ok(keys),
        keys => Err(BadKeys::TooMany { keys }),
    }
}

/// Why keys cannot be locked.
pub(crate) enum BadKeys {
    Empty,
    TooMany { keys: usize },
    Unfit { key: String },
    Missing { what: String },
    Unclear { what: String },
    TooLarge { limit: usize },
    Unread { error: BoxError },
}

impl BadKeys {
    pub(crate) fn rejection(&self) -> Rejection {
        match self {
            Self::TooLarge { .. } => Rejection::too_large(),
            _ => Rejection::new(Reason::Key),
        }
    }
}

impl fmt::Display for BadKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key function gave an empty list of keys"),
            Self::TooMany { keys } => write!(
                f,
                "the key function gave {keys} different keys: at most {MAX_KEYS} are allowed"
            ),
            Self::Missing { what } => write!(f, "the request has no {what} to make a key of"),
            Self::Unclear { what } => write!(
                f,
                "the {what} to make a key of is empty, no UTF-8, or in the request more than once"
            ),
            Self::TooLarge { limit } => {
                write!(
                    f,
                    "the body to make a key of has more than {limit} bytes, or than a limit outside bears"
                )
            }
            Self::Unread { error } => {
                write!(f, "the body to make a key of could not be read: {error}")
            }
            Self::Unfit { key } => {
                const SHOWN: usize = 64;
                let shown: String = key.chars().take(SHOWN).collect();
                write!(
                    f,
                    "the key {shown:?} has {} bytes: 1 to {MAX_KEY_BYTES} are allowed, and no control characters",
                    key.len()
                )
            }
        }
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
                LockKeys(Named::Keys(vec![self.into()]))
            }
        }
    )+};
}

one_key!(String, &'static str, Cow<'static, str>);

impl<T: Into<String>> IntoLockKeys for Vec<T> {
    fn into_lock_keys(self) -> LockKeys {
        LockKeys(Named::Keys(self.into_iter().map(Into::into).collect()))
    }
}

impl<T: Into<String>, const N: usize> IntoLockKeys for [T; N] {
    fn into_lock_keys(self) -> LockKeys {
        LockKeys(Named::Keys(self.into_iter().map(Into::into).collect()))
    }
}

impl<T: IntoLockKeys> IntoLockKeys for Option<T> {
    fn into_lock_keys(self) -> LockKeys {
        self.map_or(LockKeys(Named::Nothing), T::into_lock_keys)
    }
}

#[cfg(not(feature = "axum"))]
impl<T: IntoLockKeys> IntoLockKeys for Result<T, Response<http_body_util::Full<Bytes>>> {
    fn into_lock_keys(self) -> LockKeys {
        self.map_or_else(LockKeys::boxed, T::into_lock_keys)
    }
}

/// A key function with its state, as the layer keeps it.
#[derive(Clone)]
pub(crate) struct ErasedKey(
    Arc<dyn for<'a> Fn(&'a mut Parts) -> BoxFuture<'a, Named> + Send + Sync>,
);

impl ErasedKey {
    pub(crate) fn new<F, M, S>(key: F, state: S) -> Self
    where
        F: KeyFn<M, S>,
        F::Keys: IntoLockKeys,
        S: Send + Sync + 'static,
    {
        let shared = Arc::new((key, state));
        Self(Arc::new(move |parts| {
            let shared = Arc::clone(&shared);
            Box::pin(async move {
                let (key, state) = &*shared;
                let keys = key.keys(parts, state).await;
                keys.map_or_else(|answer| answer, F::Keys::into_lock_keys).0
            })
        }))
    }

    pub(crate) async fn of(&self, parts: &mut Parts) -> Named {
        (self.0)(parts).await
    }
}

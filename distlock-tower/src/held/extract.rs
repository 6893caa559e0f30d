//! The hold as an axum extractor.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::{Held, Unlocked};
use crate::respond;

/// The rejection of the [`Held`] extractor. It is answered with 500 `urn:distlock:config`.
///
/// # Examples
/// ```
/// use axum::extract::FromRequestParts;
/// use distlock_tower::{Held, HeldRejection};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (mut parts, ()) = http::Request::new(()).into_parts();
/// let rejection = Held::from_request_parts(&mut parts, &()).await.unwrap_err();
/// assert_eq!(rejection, HeldRejection::NotInstalled);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldRejection {
    /// There is no `LockLayer` around the handler.
    NotInstalled,
    /// The layer took no lock for this request: the key function returned `None`, a condition of
    /// [`when`](crate::LockLayer::when) or [`methods`](crate::LockLayer::methods) excluded it, or the data for an
    /// [optional](crate::LockLayer::optional) key is missing.
    NoKey,
}

impl<S: Sync> FromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HeldRejection> {
        let held = parts.extensions.get::<Self>().cloned();
        held.ok_or_else(|| match parts.extensions.get::<Unlocked>() {
            Some(Unlocked) => HeldRejection::NoKey,
            None => HeldRejection::NotInstalled,
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

impl HeldRejection {
    fn text(self) -> &'static str {
        match self {
            Self::NotInstalled => "LockLayer is not installed on this route",
            Self::NoKey => {
                "LockLayer took no lock for this request: its conditions exclude it, or it has no key"
            }
        }
    }
}

impl IntoResponse for HeldRejection {
    fn into_response(self) -> Response {
        respond::misused(self.text()).into_response()
    }
}

impl fmt::Display for HeldRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for HeldRejection {}

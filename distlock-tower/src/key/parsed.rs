//! Key functions over a value that the body is parsed to.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::body::BufferedBody;
use super::{BodyError, KeyError, KeyFn, KeyFuture, LockKeys};
use crate::error::BoxError;

/// Marks key functions over a value that the body is parsed to.
pub(crate) enum ViaParsed {}

/// A format of bodies.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    name: &'static str,
    /// Whether a media type, in lower case and without parameters, is one of this format.
    is_type: fn(&str) -> bool,
}

#[cfg(feature = "json")]
const JSON: Format = Format {
    name: "JSON",
    is_type: |media_type| {
        media_type == "application/json"
            || (media_type.starts_with("application/") && media_type.ends_with("+json"))
    },
};

#[cfg(feature = "form")]
const FORM: Format = Format {
    name: "form",
    is_type: |media_type| media_type == "application/x-www-form-urlencoded",
};

impl Format {
    /// Whether the request says that its body is of this format, and in UTF-8.
    fn is_named_by(self, headers: &HeaderMap) -> bool {
        let written = headers.get(CONTENT_TYPE).map(http::HeaderValue::to_str);
        let Some(Ok(written)) = written else {
            return false;
        };
        let written = written.to_ascii_lowercase();
        let mut parts = written.split(';').map(str::trim);
        let is_type = parts.next().is_some_and(self.is_type);
        is_type
            && parts
                .filter_map(|parameter| parameter.strip_prefix("charset="))
                .all(|charset| matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"))
    }
}

/// A function over the value that the body is parsed to.
pub(crate) struct ParsedKeyFn<F, T> {
    key: F,
    format: Format,
    parse: fn(&[u8]) -> Result<T, BoxError>,
}

impl<F, T: DeserializeOwned> ParsedKeyFn<F, T> {
    #[cfg(feature = "json")]
    pub(crate) fn json(key: F) -> Self {
        Self {
            key,
            format: JSON,
            parse: |body| Ok(serde_json::from_slice(body)?),
        }
    }

    #[cfg(feature = "form")]
    pub(crate) fn form(key: F) -> Self {
        Self {
            key,
            format: FORM,
            parse: |body| Ok(serde_urlencoded::from_bytes(body)?),
        }
    }
}

impl<F, T> ParsedKeyFn<F, T> {
    /// The value, or `None` if there is no body. A body that cannot be read is never the same as no body: a client could
    /// choose to run without the lock.
    fn value(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<T>, BodyError> {
        let format = self.format;
        if body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            return Ok(None);
        }
        if !format.is_named_by(headers) {
            return Err(BodyError::OfOtherType {
                format: format.name,
            });
        }
        let parsed = (self.parse)(body).map(Some);
        parsed.map_err(|error| BodyError::NotParsed {
            format: format.name,
            error,
        })
    }
}

impl<F, T, K, S> KeyFn<ViaParsed, S> for ParsedKeyFn<F, T>
where
    F: Fn(T) -> K + Send + Sync + 'static,
    T: 'static,
{
    type Keys = K;

    fn keys<'a, O: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        _: &'a S,
        into: fn(Result<K, LockKeys>) -> O,
    ) -> KeyFuture<'a, O> {
        let body = BufferedBody::take(parts);
        let keys = match self.value(&parts.headers, &body) {
            Ok(Some(value)) => Ok((self.key)(value)),
            Ok(None) => {
                let what = format!("{} body", self.format.name);
                Err(LockKeys(Err(KeyError::Missing { what }.into())))
            }
            Err(error) => Err(LockKeys(Err(KeyError::from(error).into()))),
        };
        KeyFuture::Ready(into(keys))
    }
}

//! Templates: keys as text with placeholders for values from the head of a request.

mod error;
mod parse;

use std::borrow::Cow;
use std::fmt;

use http::header::HeaderName;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use smallvec::smallvec;

pub use self::error::TemplateError;
use super::{KeyError, KeyFn, KeyFuture, Keys, LockKeys, NoKeys, foreign};

/// Marks a [`Template`] in the place of a key function. Always inferred.
#[derive(Debug)]
pub enum ViaTemplate {}

/// A key as text with placeholders: `article:<path.slug>:<header.x-tenant>`.
///
/// | placeholder | value |
/// | --- | --- |
/// | `<path.NAME>` | the route's capture `NAME`, also of an outer router; needs the feature `axum` |
/// | `<query.NAME>` | the query parameter `NAME` |
/// | `<header.NAME>` | the header `NAME`; for `host` the host of the URI, which HTTP/2 has in its place |
/// | `<method>` | the method |
/// | `<uri.path>` | the path; in a nested router of axum, the full path (with the feature `axum`, which is on by default; without it, the path below the prefix) |
///
/// Path and query are percent-decoded once. Write `<<` and `>>` for a literal `<` and `>`. All other text is literal. This
/// includes braces, which are a hash tag of Redis: `{cart}:<path.id>`.
///
/// A placeholder in the syntax of other libraries is plain text too, and all requests would then have one key. A text
/// without a placeholder is therefore refused if it contains `{id}`, `:id`, `#id`, `path.id` or the like. A key that is the
/// same for all requests is a function that returns it: `.key(|_: &http::request::Parts| "order:import")`. If a text with
/// a placeholder contains `{id}`, and the route has a capture `id` for which there is no `<path.id>`, requests are answered
/// with 500 `urn:distlock:config`, and the log says how to write it.
///
/// A request that lacks a value is answered with 400, or runs unlocked if the layer's key is
/// [optional](crate::LockLayer::optional). If a value is empty, not UTF-8, or repeated, the answer is always 400: the
/// layer does not know which of the repeated values the handler will use. A capture that the route does not have, where it has others,
/// is a mistake of the program: 500 `urn:distlock:config`, unless the key is optional, and the log names the captures of the route. So is
/// a capture of which the route has several, as in `/tenants/{id}/orders/{id}`.
///
/// Values are not escaped. Clients choose them, so separate two values with a character that neither can contain.
///
/// The rendered text is the key. A handler that parses a number treats `/orders/42` and `/orders/042` as the same
/// order, but they are two keys, so two requests can work on that order at the same time. If the handler parses a
/// value, use the parsed value of an extractor, in a [key function](crate::Unkeyed::key).
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use distlock_tower::{LockLayer, Template};
///
/// # fn main() -> Result<(), distlock_tower::TemplateError> {
/// let client = distlock::Client::in_memory();
/// let template: Template = "article:<path.slug>:<header.x-tenant>".parse()?;
/// let layer = LockLayer::new(client.clone()).key(template);
/// // The same, for a literal in the code:
/// let layer = LockLayer::new(client).key_template("article:<path.slug>:<header.x-tenant>");
///
/// assert!("article:<path.slug".parse::<Template>().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The names in braces for which there is no placeholder. One that a route captures is a mistake.
    braced: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Placeholder {
    Path(String),
    Query(String),
    Header(HeaderName),
    Method,
    UriPath,
}

impl Template {
    /// The header's name, a colon, and its value.
    pub(crate) fn of_header(name: HeaderName) -> Self {
        let text = Piece::Text(format!("{name}:"));
        let placeholder = Piece::Placeholder(Placeholder::Header(name));
        Self::of_pieces(vec![text, placeholder])
    }

    fn of_pieces(pieces: Vec<Piece>) -> Self {
        let texts = pieces.iter().filter_map(Piece::text);
        let has_own = |name: &str| {
            let of_path = Placeholder::Path(name.to_owned());
            pieces.contains(&Piece::Placeholder(of_path))
        };
        let braced = texts
            .flat_map(foreign::braced)
            .filter(|name| !has_own(name));
        let braced = braced.map(str::to_owned).collect();
        Self { pieces, braced }
    }

    /// Whether the captures of the route matter.
    fn has_captures(&self) -> bool {
        let is_capture = |piece: &Piece| matches!(piece, Piece::Placeholder(Placeholder::Path(_)));
        !self.braced.is_empty() || self.pieces.iter().any(is_capture)
    }

    /// A capture of the route whose placeholder is written in another syntax.
    fn misspelt(&self, captures: &Captures) -> Option<&String> {
        let captured = |name: &&String| {
            let mut captures = captures.iter().flatten();
            captures.any(|(own, _)| own == *name)
        };
        self.braced.iter().find(captured)
    }

    fn render(&self, parts: &Parts, captures: &Captures) -> Result<Keys, KeyError> {
        if let Some(name) = self.misspelt(captures) {
            let name = name.clone();
            return Err(KeyError::Misspelt { name });
        }
        let mut key = String::new();
        let mut missing = None;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Placeholder(placeholder) => match placeholder.value(parts, captures) {
                    Value::Present(value) => key.push_str(&value),
                    Value::Missing => missing = missing.or(Some(placeholder)),
                    // Even if another value is missing: a client must not skip an optional lock by repeating a value.
                    Value::Ambiguous => return Err(placeholder.ambiguous(captures)),
                },
            }
        }
        match missing {
            Some(placeholder) => Err(placeholder.missing(captures)),
            None => Ok(smallvec![key]),
        }
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Placeholder(_) => None,
        }
    }
}

/// The value of a placeholder in a request.
enum Value<'a> {
    Present(Cow<'a, str>),
    Missing,
    /// Empty, not UTF-8, or repeated.
    Ambiguous,
}

impl<'a> Value<'a> {
    /// The only one of `values`. `None` in `values` is a value that is not UTF-8.
    fn only(mut values: impl Iterator<Item = Option<Cow<'a, str>>>) -> Self {
        match (values.next(), values.next()) {
            (None, _) => Self::Missing,
            (Some(Some(value)), None) if !value.is_empty() => Self::Present(value),
            _ => Self::Ambiguous,
        }
    }
}

impl Placeholder {
    /// A route without the capture is a mistake of the program, and not of the request. A URL without a route has no captures.
    fn missing(&self, captures: &Captures) -> KeyError {
        match (self, captures) {
            (Self::Path(name), Some(captures)) if !captures.is_empty() => KeyError::NoCapture {
                name: name.clone(),
                others: captures.iter().map(|(own, _)| own.clone()).collect(),
            },
            _ => KeyError::Missing {
                what: self.to_string(),
            },
        }
    }

    /// Several captures of one name are a mistake of the program as well.
    fn ambiguous(&self, captures: &Captures) -> KeyError {
        let times = |name: &String| {
            let captures = captures.iter().flatten();
            captures.filter(|(own, _)| own == name).count()
        };
        match self {
            Self::Path(name) if times(name) > 1 => KeyError::SeveralCaptures { name: name.clone() },
            _ => KeyError::Ambiguous {
                what: self.to_string(),
            },
        }
    }

    fn value<'a>(&self, parts: &'a Parts, captures: &'a Captures) -> Value<'a> {
        match self {
            Self::Path(name) => match captures {
                Some(captures) => {
                    let named = captures.iter().filter(|(own, _)| own == name);
                    Value::only(named.map(|(_, value)| Some(value.as_str().into())))
                }
                None => Value::Ambiguous,
            },
            Self::Query(name) => {
                let query = parts.uri.query().unwrap_or_default();
                let named = form_urlencoded::parse(query.as_bytes()).filter(|(own, _)| own == name);
                // The parser replaces bytes that are not UTF-8 by this character.
                let is_text = |value: &Cow<'_, str>| !value.contains(char::REPLACEMENT_CHARACTER);
                Value::only(named.map(|(_, value)| Some(value).filter(is_text)))
            }
            Self::Header(name) => {
                let values = parts.headers.get_all(name).into_iter();
                let values =
                    values.map(|value| str::from_utf8(value.as_bytes()).ok().map(Into::into));
                // HTTP/2 has the host in the URI.
                let in_uri = parts.uri.authority().filter(|_| {
                    name == http::header::HOST && !parts.headers.contains_key(http::header::HOST)
                });
                // Without the name of a user, which a client may write before it.
                let host = |in_uri: &'a http::uri::Authority| in_uri.as_str().rsplit('@').next();
                Value::only(values.chain(in_uri.map(|in_uri| host(in_uri).map(Into::into))))
            }
            Self::Method => Value::Present(parts.method.as_str().into()),
            Self::UriPath => {
                let path = percent_decode_str(full_path(parts)).decode_utf8().ok();
                Value::only(std::iter::once(path))
            }
        }
    }
}

/// The names and values of the route's captures. `None` if any value is not UTF-8.
type Captures = Option<Vec<(String, String)>>;

#[cfg(feature = "axum")]
async fn captures(parts: &mut Parts) -> Captures {
    use axum::extract::rejection::RawPathParamsRejection::MissingPathParams;
    use axum::extract::{FromRequestParts as _, RawPathParams};

    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => {
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            Some(params.iter().map(own).collect())
        }
        // The layer is not on a route, so there are no captures.
        Err(MissingPathParams(_)) => Some(Vec::new()),
        Err(_) => None,
    }
}

#[cfg(not(feature = "axum"))]
async fn captures(_: &mut Parts) -> Captures {
    Some(Vec::new())
}

/// A nested router removes its prefix from the URI; axum keeps the full one in an extension.
#[cfg(feature = "axum")]
fn full_path(parts: &Parts) -> &str {
    use axum::extract::OriginalUri;

    let original = parts.extensions.get::<OriginalUri>();
    original.map_or_else(|| parts.uri.path(), |uri| uri.0.path())
}

#[cfg(not(feature = "axum"))]
fn full_path(parts: &Parts) -> &str {
    parts.uri.path()
}

#[diagnostic::do_not_recommend]
impl<S: Sync> KeyFn<ViaTemplate, S> for Template {
    type Keys = LockKeys;

    fn keys<'a, T: Send + 'a>(
        &'a self,
        parts: &'a mut Parts,
        _: &'a S,
        into: fn(Result<LockKeys, LockKeys>) -> T,
    ) -> KeyFuture<'a, T> {
        if !self.has_captures() {
            let keys = self.render(parts, &Some(Vec::new()));
            return KeyFuture::Ready(into(Ok(LockKeys(keys.map_err(NoKeys::from)))));
        }
        KeyFuture::Boxed(Box::pin(async move {
            let captures = captures(parts).await;
            let keys = self.render(parts, &captures);
            into(Ok(LockKeys(keys.map_err(NoKeys::from))))
        }))
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "path.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Method => f.write_str("method"),
            Self::UriPath => f.write_str("uri.path"),
        }
    }
}

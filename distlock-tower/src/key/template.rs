//! Keys from templates: text with placeholders for what the head of a request says.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::header::HeaderName;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::{KeyFn, KeyFuture, LockKeys, Named};

/// Marks a [`Template`] in the place of a key function; always inferred.
#[derive(Debug)]
pub enum ViaTemplate {}

/// A key as text with placeholders: `order:<path.id>:<header.x-tenant>`.
///
/// | placeholder | what stands in its place |
/// | --- | --- |
/// | `<path.NAME>` | the route's capture `NAME`, of an outer router too; with the feature `axum` |
/// | `<query.NAME>` | the parameter `NAME` of the query |
/// | `<header.NAME>` | the header `NAME` |
/// | `<method>` | the method |
/// | `<uri.path>` | the path, in a nested router the whole one |
///
/// Path and query are percent-decoded once. `<<` and `>>` stand for `<` and `>`; all else is text, braces too.
///
/// A request in which a value is missing, empty, no UTF-8, or there more than once (so that it could not be said which
/// one the handler will look at) is answered 400, or passes without a lock where the layer's key is
/// [optional](crate::LockLayer::optional). Nothing is escaped: strangers choose the values, so separate them by what none
/// of them can have.
///
/// # Examples
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use distlock_tower::{LockLayer, Template};
///
/// # fn main() -> Result<(), distlock_tower::TemplateError> {
/// let client = distlock::Client::in_memory();
/// let template: Template = "order:<path.id>:<header.x-tenant>".parse()?;
/// let layer = LockLayer::new(client.clone()).key(template);
/// // The same, for a template that stands in the code:
/// let layer = LockLayer::new(client).key_template("order:<path.id>:<header.x-tenant>");
///
/// assert!("order:<path.id".parse::<Template>().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Source),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Path(String),
    Query(String),
    Header(HeaderName),
    Method,
    UriPath,
}

impl Template {
    /// The header's value after its name.
    pub(crate) fn of_header(name: HeaderName) -> Self {
        let text = Piece::Text(format!("{name}:"));
        Self {
            pieces: vec![text, Piece::Value(Source::Header(name))],
        }
    }

    fn has_captures(&self) -> bool {
        let is_capture = |piece: &Piece| matches!(piece, Piece::Value(Source::Path(_)));
        self.pieces.iter().any(is_capture)
    }

    fn render(&self, parts: &Parts, captures: &Captures) -> LockKeys {
        let mut key = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Value(source) => match source.value(parts, captures) {
                    Some(value) if !value.is_empty() => key.push_str(&value),
                    _ => return LockKeys(Named::Missing(source.to_string())),
                },
            }
        }
        LockKeys(Named::Keys(vec![key]))
    }
}

impl Source {
    fn value<'a>(&self, parts: &'a Parts, captures: &'a Captures) -> Option<Cow<'a, str>> {
        match self {
            Self::Path(name) => only(captures.iter().filter(|(own, _)| own == name))
                .map(|(_, value)| value.as_str().into()),
            Self::Query(name) => {
                let query = form_urlencoded::parse(parts.uri.query()?.as_bytes());
                let (_, value) = only(query.filter(|(own, _)| own == name))?;
                // Put there for what is no UTF-8.
                (!value.contains(char::REPLACEMENT_CHARACTER)).then_some(value)
            }
            Self::Header(name) => {
                let value = only(parts.headers.get_all(name).into_iter())?;
                str::from_utf8(value.as_bytes()).ok().map(Cow::Borrowed)
            }
            Self::Method => Some(parts.method.as_str().into()),
            Self::UriPath => percent_decode_str(whole_path(parts)).decode_utf8().ok(),
        }
    }
}

/// The one item that there is.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

type Captures = Vec<(String, String)>;

#[cfg(feature = "axum")]
async fn captures(parts: &mut Parts) -> Captures {
    use axum::extract::{FromRequestParts as _, RawPathParams};

    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => {
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            params.iter().map(own).collect()
        }
        Err(_) => Captures::new(),
    }
}

#[cfg(not(feature = "axum"))]
async fn captures(_: &mut Parts) -> Captures {
    Captures::new()
}

/// A nested router takes its prefix off the URI.
#[cfg(feature = "axum")]
fn whole_path(parts: &Parts) -> &str {
    use axum::extract::OriginalUri;

    let original = parts.extensions.get::<OriginalUri>();
    original.map_or_else(|| parts.uri.path(), |uri| uri.0.path())
}

#[cfg(not(feature = "axum"))]
fn whole_path(parts: &Parts) -> &str {
    parts.uri.path()
}

#[diagnostic::do_not_recommend]
impl<S: Sync> KeyFn<ViaTemplate, S> for Template {
    type Keys = LockKeys;

    fn keys<'a>(&'a self, parts: &'a mut Parts, _: &'a S) -> KeyFuture<'a, LockKeys> {
        Box::pin(async {
            let captures = match self.has_captures() {
                true => captures(parts).await,
                false => Captures::new(),
            };
            Ok(self.render(parts, &captures))
        })
    }
}

/// Why a text is no [`Template`].
///
/// # Examples
/// ```
/// use distlock_tower::Template;
///
/// let error = "order:<body.id>".parse::<Template>().unwrap_err();
/// assert!(error.to_string().contains("unknown placeholder `<body.id>`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is nothing in it.
    Empty,
    /// A `<` without its `>`.
    Unclosed,
    /// A `>` without its `<`.
    Stray,
    /// A placeholder that names nothing that can be looked at here.
    Unknown(String),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an empty key template locks nothing"),
            Self::Unclosed => {
                f.write_str("unclosed `<` in a key template (a literal `<` is written `<<`)")
            }
            Self::Stray => {
                f.write_str("stray `>` in a key template (a literal `>` is written `>>`)")
            }
            Self::Unknown(name) => {
                let path = if cfg!(feature = "axum") {
                    "`<path.NAME>`, "
                } else {
                    ""
                };
                write!(
                    f,
                    "unknown placeholder `<{name}>` in a key template; expected {path}`<query.NAME>`, \
                     `<header.NAME>`, `<method>` or `<uri.path>`"
                )
            }
        }
    }
}

impl std::error::Error for TemplateError {}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['<', '>']) {
            plain.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(mark) {
                plain.push_str(mark);
                rest = after;
                continue;
            }
            if mark == ">" {
                return Err(TemplateError::Stray);
            }
            let (name, after) = after.split_once('>').ok_or(TemplateError::Unclosed)?;
            pieces.extend(text_piece(&mut plain));
            pieces.push(Piece::Value(name.parse()?));
            rest = after;
        }
        plain.push_str(rest);
        pieces.extend(text_piece(&mut plain));
        match pieces.is_empty() {
            true => Err(TemplateError::Empty),
            false => Ok(Self { pieces }),
        }
    }
}

fn text_piece(plain: &mut String) -> Option<Piece> {
    let text = std::mem::take(plain);
    (!text.is_empty()).then_some(Piece::Text(text))
}

impl FromStr for Source {
    type Err = TemplateError;

    fn from_str(name: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(name.to_owned());
        match name.split_once('.') {
            None if name == "method" => Ok(Self::Method),
            Some(("uri", "path")) => Ok(Self::UriPath),
            Some((_, "")) => Err(unknown()),
            Some(("path", capture)) if cfg!(feature = "axum") => Ok(Self::Path(capture.to_owned())),
            Some(("query", parameter)) => Ok(Self::Query(parameter.to_owned())),
            Some(("header", header)) => header.parse().map(Self::Header).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Source {
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

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

/// A key as text with placeholders: `article:<path.slug>:<header.x-tenant>`.
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
/// A request in which a value is missing is answered 400, or passes without a lock where the layer's key is
/// [optional](crate::LockLayer::optional). One in which a value is empty, no UTF-8, or there more than once (so that it
/// could not be said which one the handler will look at) is answered 400 in any case. Nothing is escaped: strangers choose
/// the values, so separate them by what none of them can have.
///
/// The text is the key: `/orders/42` and `/orders/042` name one order to a handler that parses the number, and are two
/// keys, under which two requests work on it at once. Where the handler parses, take the parsed value from an extractor,
/// in a [key function](crate::Unkeyed::key).
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
/// // The same, for a template that stands in the code:
/// let layer = LockLayer::new(client).key_template("article:<path.slug>:<header.x-tenant>");
///
/// assert!("article:<path.slug".parse::<Template>().is_err());
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

    fn render(&self, parts: &Parts, captures: &Captures) -> Named {
        let (mut key, mut missing) = (String::new(), None);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Value(source) => match source.value(parts, captures) {
                    Found::One(value) => key.push_str(&value),
                    Found::Nothing => missing = missing.or(Some(source)),
                    // Whatever else is missing: who sends this must not get past an optional lock by it.
                    Found::Unclear => return Named::Unclear(source.to_string()),
                },
            }
        }
        match missing {
            Some(source) => Named::Missing(source.to_string()),
            None => Named::Keys(vec![key]),
        }
    }
}

/// What a request has of a value.
enum Found<'a> {
    One(Cow<'a, str>),
    Nothing,
    /// Empty, no UTF-8, or several.
    Unclear,
}

impl<'a> Found<'a> {
    /// The only one of these, where `None` is one that is no UTF-8.
    fn only(mut values: impl Iterator<Item = Option<Cow<'a, str>>>) -> Self {
        match (values.next(), values.next()) {
            (None, _) => Self::Nothing,
            (Some(Some(value)), None) if !value.is_empty() => Self::One(value),
            _ => Self::Unclear,
        }
    }
}

impl Source {
    fn value<'a>(&self, parts: &'a Parts, captures: &'a Captures) -> Found<'a> {
        match self {
            Self::Path(name) => match captures {
                Some(captures) => {
                    let named = captures.iter().filter(|(own, _)| own == name);
                    Found::only(named.map(|(_, value)| Some(value.as_str().into())))
                }
                None => Found::Unclear,
            },
            Self::Query(name) => {
                let query = parts.uri.query().unwrap_or_default();
                let named = form_urlencoded::parse(query.as_bytes()).filter(|(own, _)| own == name);
                // Put there for what is no UTF-8.
                let is_text = |value: &Cow<'_, str>| !value.contains(char::REPLACEMENT_CHARACTER);
                Found::only(named.map(|(_, value)| Some(value).filter(is_text)))
            }
            Self::Header(name) => {
                let values = parts.headers.get_all(name).into_iter();
                Found::only(
                    values.map(|value| str::from_utf8(value.as_bytes()).ok().map(Into::into)),
                )
            }
            Self::Method => Found::One(parts.method.as_str().into()),
            Self::UriPath => {
                let path = percent_decode_str(whole_path(parts)).decode_utf8().ok();
                Found::only(std::iter::once(path))
            }
        }
    }
}

/// None where one is no UTF-8, whichever.
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
        // Outside of routes.
        Err(MissingPathParams(_)) => Some(Vec::new()),
        Err(_) => None,
    }
}

#[cfg(not(feature = "axum"))]
async fn captures(_: &mut Parts) -> Captures {
    Some(Vec::new())
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
                false => Some(Vec::new()),
            };
            Ok(LockKeys(self.render(parts, &captures)))
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

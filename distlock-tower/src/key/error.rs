//! Why a request has no usable keys.

use std::fmt;

use super::{MAX_KEY_BYTES, MAX_KEYS};
use crate::error::BoxError;
use crate::respond::{Reason, Rejection};

/// How much of an invalid key its error shows, in characters.
const SHOWN: usize = 64;

/// Why a request has no usable keys.
pub(crate) enum KeyError {
    /// The key function returned `None`.
    NoKey,
    Empty,
    TooMany {
        keys: usize,
    },
    Invalid {
        key: String,
    },
    /// The request lacks the named data.
    Missing {
        what: String,
    },
    /// The named data is present, but empty, not UTF-8, or repeated. An optional key must not be skipped because of it.
    Ambiguous {
        what: String,
    },
    /// The template has the capture of this name in another syntax, as plain text.
    Misspelt {
        name: String,
    },
    /// The route has other captures than this one of the template.
    NoCapture {
        name: String,
        others: Vec<String>,
    },
    /// The route has several captures of this name of the template.
    SeveralCaptures {
        name: String,
    },
    /// The body cannot be read as what the key function needs.
    Body(BodyError),
}

/// Why the body of a request gives no key.
pub(crate) enum BodyError {
    TooLarge {
        limit: usize,
    },
    Unreadable {
        error: BoxError,
    },
    /// The body is compressed, for example.
    Encoded {
        encoding: String,
    },
    /// The request does not say that its body is of the format that the key function needs.
    #[cfg(any(feature = "json", feature = "form"))]
    OfOtherType {
        format: &'static str,
    },
    #[cfg(any(feature = "json", feature = "form"))]
    NotParsed {
        format: &'static str,
        error: BoxError,
    },
}

impl KeyError {
    /// Whether the request has no key. An optional lock is then left out.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::NoKey | Self::Missing { .. } | Self::NoCapture { .. }
        )
    }

    pub(crate) fn rejection(&self) -> Rejection {
        match self {
            Self::Misspelt { .. } | Self::NoCapture { .. } | Self::SeveralCaptures { .. } => {
                Rejection::new(Reason::Config)
            }
            Self::Body(error) => error.rejection(),
            _ => Rejection::new(Reason::Key),
        }
    }
}

impl BodyError {
    fn rejection(&self) -> Rejection {
        match self {
            Self::TooLarge { .. } => Rejection::too_large(),
            Self::Encoded { .. } => Rejection::unsupported_body(),
            #[cfg(any(feature = "json", feature = "form"))]
            Self::OfOtherType { .. } => Rejection::unsupported_body(),
            _ => Rejection::new(Reason::Key),
        }
    }
}

impl From<BodyError> for KeyError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("the key function found no lock key in the request"),
            Self::Empty => f.write_str("the key function returned an empty list of keys"),
            Self::TooMany { keys } => write!(
                f,
                "the key function returned {keys} different keys; at most {MAX_KEYS} are allowed"
            ),
            Self::Invalid { key } => {
                let shown: String = key.chars().take(SHOWN).collect();
                write!(
                    f,
                    "invalid lock key {shown:?} of {} bytes; expected 1 to {MAX_KEY_BYTES} bytes without control characters",
                    key.len()
                )
            }
            Self::Missing { what } => {
                write!(f, "the request has no {what}, which its lock key needs")
            }
            Self::Ambiguous { what } => write!(
                f,
                "the lock key needs {what}, which is empty, not UTF-8, or repeated in the request"
            ),
            Self::Misspelt { name } => write!(
                f,
                "`{{{name}}}` is plain text in the key template, and the route has a capture `{name}`; \
                 write `<path.{name}>`"
            ),
            Self::NoCapture { name, others } => write!(
                f,
                "the key template has `<path.{name}>`, and the route has no capture `{name}`; it has `{}`. Name one of these, put \
                 the layer on the routes that have the capture, or make it `optional()`",
                others.join("`, `")
            ),
            Self::SeveralCaptures { name } => write!(
                f,
                "the key template has `<path.{name}>`, and the route has several captures `{name}`; give them different names, or \
                 take the key from the extractor `Path`"
            ),
            Self::Body(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(
                f,
                "the body is too large to read a lock key from it: it exceeds {limit} bytes, or a limit outside the layer"
            ),
            Self::Unreadable { error } => {
                write!(f, "reading the body for the lock key failed: {error}")
            }
            Self::Encoded { encoding } => write!(
                f,
                "the body has the content encoding {encoding:?}, in which the layer cannot read a lock key; \
                 decompress it outside the layer"
            ),
            #[cfg(any(feature = "json", feature = "form"))]
            Self::OfOtherType { format } => write!(
                f,
                "the content type of the request is not that of a {format} body in UTF-8, which its lock key needs"
            ),
            #[cfg(any(feature = "json", feature = "form"))]
            Self::NotParsed { format, error } => write!(
                f,
                "reading the lock key from the {format} body failed: {error}"
            ),
        }
    }
}

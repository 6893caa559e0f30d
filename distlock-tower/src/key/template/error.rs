//! The error of parsing a template.

use std::fmt;

/// The error of parsing a [`Template`](crate::Template).
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
    /// The text is empty.
    Empty,
    /// A `<` without a `>`.
    Unclosed,
    /// A `>` without a `<`.
    Stray,
    /// An unknown placeholder: its text without `<` and `>`.
    Unknown(String),
    /// The text has no placeholder, and contains one in the syntax of another library, which is plain text here.
    #[non_exhaustive]
    NoPlaceholder {
        /// What is plain text.
        written: String,
        /// The placeholder that is meant, if it is a capture of the route.
        meant: String,
    },
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty key template"),
            Self::Unclosed => {
                f.write_str("unclosed `<` in a key template (write `<<` for a literal `<`)")
            }
            Self::Stray => {
                f.write_str("stray `>` in a key template (write `>>` for a literal `>`)")
            }
            Self::Unknown(name) => {
                let path = if cfg!(feature = "axum") {
                    "`<path.NAME>`, "
                } else {
                    ""
                };
                let feature = if name.starts_with("path.") && path.is_empty() {
                    "; `<path.NAME>` needs the feature `axum`"
                } else {
                    ""
                };
                write!(
                    f,
                    "unknown placeholder `<{name}>` in a key template; expected {path}`<query.NAME>`, \
                     `<header.NAME>`, `<method>` or `<uri.path>`{feature}"
                )
            }
            Self::NoPlaceholder { written, meant } => write!(
                f,
                "`{written}` is plain text in a key template, so all requests would have one key; write `{meant}`, \
                 or `<query.NAME>` or `<header.NAME>`, for a value of the request; \
                 a key for all requests is a function: `.key(|_: &http::request::Parts| \"import\")`"
            ),
        }
    }
}

impl std::error::Error for TemplateError {}

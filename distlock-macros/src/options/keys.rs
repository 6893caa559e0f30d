//! The options `key` and `keys`.

use syn::{Error, Expr, ExprLit, ExprRange, Ident, Lit, RangeLimits, Result};

use super::setting::ungroup;
use super::template::Template;
use crate::errors::Errors;

/// The keys to lock.
pub(crate) enum Keys {
    /// `key = ..`
    Single(Key),
    /// `keys = [..]`
    List(Vec<Element>),
    /// `keys = ..`, an expression that yields all keys.
    Expr(Expr),
}

/// One key.
pub(crate) enum Key {
    Template(Template),
    /// An expression that is the whole key.
    Expr(Expr),
}

/// An element of `keys = [..]`.
pub(crate) enum Element {
    Key(Key),
    /// `..expression`, which yields any number of keys.
    Spread(Expr),
}

impl Keys {
    /// Parses the value of `key`.
    pub(crate) fn from_key(key: Expr) -> Result<Self> {
        Key::from_expr(key).map(Self::Single)
    }

    /// Parses the value of `keys`.
    pub(crate) fn from_keys(keys: Expr) -> Result<Self> {
        match keys {
            Expr::Array(list) if list.elems.is_empty() => Err(Error::new_spanned(
                list,
                "`keys` is empty: name the keys to lock, e.g. `keys = [\"order:<id>\", \"stock:<item>\"]`",
            )),
            Expr::Array(list) => {
                let mut errors = Errors::default();
                let elements = list.elems.into_iter();
                let elements: Vec<_> = elements
                    .filter_map(|element| errors.handle(Element::from_expr(element)))
                    .collect();
                errors.finish_with(Self::List(elements))
            }
            Expr::Lit(ExprLit {
                lit: Lit::Str(key), ..
            }) => {
                let message = "`keys` is a list; for one key write `key = ..`";
                Err(Error::new(key.span(), message))
            }
            given => Ok(Self::Expr(given)),
        }
    }

    /// Every expression in the keys, including those in templates.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        match self {
            Self::Single(key) => key.expressions(),
            Self::List(elements) => elements.iter().flat_map(Element::expressions).collect(),
            Self::Expr(all) => vec![all],
        }
    }

    /// Whether the variable is by itself a key, or a list of keys, which takes its value.
    pub(crate) fn take(&self, variable: &Ident) -> bool {
        let is_it = |expr: &Expr| is_variable(expr, variable);
        match self {
            Self::Single(key) => key.whole().is_some_and(is_it),
            Self::List(elements) => elements.iter().filter_map(Element::whole).any(is_it),
            Self::Expr(all) => is_it(all),
        }
    }

    /// The keys that are templates, without those that an expression yields.
    pub(crate) fn templates(&self) -> Vec<&Template> {
        match self {
            Self::Single(key) => key.template().into_iter().collect(),
            Self::List(elements) => elements.iter().filter_map(Element::template).collect(),
            Self::Expr(_) => Vec::new(),
        }
    }
}

impl Key {
    fn from_expr(value: Expr) -> Result<Self> {
        match value {
            Expr::Paren(inner) if is_text(&inner.expr) => Self::from_expr(ungroup(*inner.expr)),
            Expr::Lit(ExprLit {
                lit: Lit::Str(template),
                ..
            }) => Template::parse(template).map(Self::Template),
            whole => Ok(Self::Expr(whole)),
        }
    }

    fn template(&self) -> Option<&Template> {
        match self {
            Self::Template(template) => Some(template),
            Self::Expr(_) => None,
        }
    }

    /// The expression that is the whole key.
    fn whole(&self) -> Option<&Expr> {
        match self {
            Self::Template(_) => None,
            Self::Expr(expr) => Some(expr),
        }
    }

    fn expressions(&self) -> Vec<&Expr> {
        match self {
            Self::Template(template) => template
                .placeholders()
                .map(|placeholder| &placeholder.expr)
                .collect(),
            Self::Expr(expr) => vec![expr],
        }
    }
}

/// Whether an expression is the variable alone, in parentheses or not.
fn is_variable(expr: &Expr, variable: &Ident) -> bool {
    match expr {
        Expr::Path(path) => path.path.is_ident(variable),
        Expr::Paren(inner) => is_variable(&inner.expr, variable),
        Expr::Group(inner) => is_variable(&inner.expr, variable),
        _ => false,
    }
}

/// Whether the value is a string literal, in parentheses or not.
fn is_text(value: &Expr) -> bool {
    match value {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Str(_)),
        Expr::Paren(inner) => is_text(&inner.expr),
        Expr::Group(inner) => is_text(&inner.expr),
        _ => false,
    }
}

impl Element {
    fn template(&self) -> Option<&Template> {
        match self {
            Self::Key(key) => key.template(),
            Self::Spread(_) => None,
        }
    }

    /// The expression that is a whole key, or a list of keys.
    fn whole(&self) -> Option<&Expr> {
        match self {
            Self::Key(key) => key.whole(),
            Self::Spread(all) => Some(all),
        }
    }

    fn expressions(&self) -> Vec<&Expr> {
        match self {
            Self::Key(key) => key.expressions(),
            Self::Spread(all) => vec![all],
        }
    }

    /// Parses an element. syn parses the spread `..expression` as a range without a start.
    fn from_expr(value: Expr) -> Result<Self> {
        match value {
            Expr::Range(ExprRange {
                start: None,
                limits: RangeLimits::HalfOpen(_),
                end: Some(all),
                ..
            }) => Ok(Self::Spread(*all)),
            Expr::Range(range) => Err(Error::new_spanned(
                range,
                "a range is not a key; write `..iterator` to add all keys of an iterator",
            )),
            key => Key::from_expr(ungroup(key)).map(Self::Key),
        }
    }
}

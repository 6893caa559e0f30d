//! Values that are keywords, quoted or not, and suggestions for misspelt ones.

use quote::ToTokens as _;
use syn::{Error, Expr, ExprLit, Lit, Result};

/// The value of `on_unavailable`: what happens if the lock server is unavailable.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum OnUnavailable {
    #[default]
    Fail,
    /// Run the body without the lock.
    Run,
}

impl OnUnavailable {
    pub(crate) fn parse(value: &Expr) -> Result<Self> {
        match keyword(value).as_deref() {
            Some("fail") => Ok(Self::Fail),
            Some("run") => Ok(Self::Run),
            _ => Err(Error::new_spanned(value, "expected `fail` or `run`")),
        }
    }
}

/// The text of a string literal or a path; `None` for any other value.
pub(crate) fn keyword(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text.value()),
        Expr::Path(path) => Some(path.to_token_stream().to_string().replace(' ', "")),
        _ => None,
    }
}

/// The keyword that the user probably meant.
pub(crate) fn similar<'w>(written: &str, words: &[&'w str]) -> Option<&'w str> {
    let written = written.to_lowercase().replace('-', "_");
    let distance = |word: &&str| strsim::damerau_levenshtein(&written, word);
    let near = words.iter().copied().min_by_key(distance)?;
    // One typing error for each three letters. With more, `ttl` would be taken for `key`.
    (distance(&near) <= near.len().div_ceil(3)).then_some(near)
}

pub(crate) fn did_you_mean(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("did you mean `{word}`? "))
}

pub(crate) fn quoted_list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

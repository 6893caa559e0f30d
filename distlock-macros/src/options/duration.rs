//! The values of options that are durations: `"500ms"`, `"5s"`, `"1m30s"`, `"unlimited"`, `0`, or an expression.

use std::time::Duration;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, Lit};

use super::duration_text::parse;

/// The text of [`Duration::MAX`]: no limit, for the options that take it. Settings have the same word.
const UNLIMITED: &str = "unlimited";

/// The value of an option that is a duration.
pub(crate) enum DurationValue {
    /// A literal, parsed when the attribute is expanded.
    Literal(Duration, Span),
    /// An expression of type `Duration`.
    Expr(Expr),
}

impl DurationValue {
    /// Parses the value of the option `name`.
    pub(crate) fn parse(name: &str, value: Expr) -> syn::Result<Self> {
        let Expr::Lit(ExprLit { lit, .. }) = &value else {
            return Ok(Self::Expr(value));
        };
        let literal = match lit {
            Lit::Str(text) if text.value().trim().eq_ignore_ascii_case(UNLIMITED) => {
                Ok(Duration::MAX)
            }
            Lit::Str(text) => parse(&text.value()),
            Lit::Int(_) | Lit::Float(_) => bare_number(name, &lit.to_token_stream().to_string()),
            _ => return Ok(Self::Expr(value)),
        };
        match literal {
            Ok(duration) => Ok(Self::Literal(duration, lit.span())),
            Err(message) => Err(Error::new(lit.span(), message)),
        }
    }

    /// The duration of a literal.
    pub(crate) fn literal(&self) -> Option<Duration> {
        match self {
            Self::Literal(duration, _) => Some(*duration),
            Self::Expr(_) => None,
        }
    }

    /// The expression of a value that is not a literal.
    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Self::Literal(..) => None,
            Self::Expr(expr) => Some(expr),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Literal(_, span) => *span,
            Self::Expr(expr) => expr.span(),
        }
    }

    /// Refuses the literal `"unlimited"`. `instead` says what to write.
    pub(crate) fn limited(self, name: &str, instead: &str) -> syn::Result<Self> {
        match self {
            Self::Literal(Duration::MAX, span) => {
                let message = format!("`{name}` cannot be unlimited; {instead}");
                Err(Error::new(span, message))
            }
            other => Ok(other),
        }
    }

    /// Refuses a shorter literal. Redis counts in milliseconds, and a lease of 0 ms would expire at once.
    pub(crate) fn at_least_a_millisecond(self, name: &str) -> syn::Result<Self> {
        match self {
            Self::Literal(duration, span) if duration < Duration::from_millis(1) => {
                Err(Error::new(span, format!("`{name}` must be at least 1ms")))
            }
            other => Ok(other),
        }
    }
}

/// Parses a number without quotes. Only `0` is valid: other durations need a unit, and a unit needs quotes.
fn bare_number(name: &str, number: &str) -> Result<Duration, String> {
    match parse(number) {
        Ok(Duration::ZERO) if number == "0" => Ok(Duration::ZERO),
        Ok(_) => Err(format!(
            "`{name} = {number}` needs quotes; write \"{number}\""
        )),
        Err(_) if is_number(number) => Err(format!(
            "`{name} = {number}` has no unit; write \"{number}s\""
        )),
        // Its unit is none, such as that of `5min`.
        Err(invalid) => Err(invalid),
    }
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_without_quotes_is_told_of_its_unit_only_if_it_has_none() {
        for (number, says) in [
            ("5", "`wait = 5` has no unit; write \"5s\""),
            ("0.5", "`wait = 0.5` has no unit; write \"0.5s\""),
            ("5s", "`wait = 5s` needs quotes; write \"5s\""),
            ("5min", "invalid duration `5min`; expected e.g. `500ms`"),
            ("5sec", "invalid duration `5sec`; expected e.g. `500ms`"),
            ("1_000ms", "invalid duration `1_000ms`; expected e.g."),
            ("5M", "`M` means month in `5M`; write `5m` for minutes"),
        ] {
            let said = bare_number("wait", number).unwrap_err();
            assert!(said.starts_with(says), "{number}: {said}");
        }
        assert_eq!(bare_number("wait", "0"), Ok(Duration::ZERO));
    }

    #[test]
    fn unlimited_is_a_time_of_the_options_that_take_it() {
        let value = |text: &str| DurationValue::parse("wait", syn::parse_str(text).unwrap());
        for text in ["\"unlimited\"", "\" Unlimited \""] {
            let time = value(text).unwrap();
            assert_eq!(time.literal(), Some(Duration::MAX), "{text}");
            let refused = time.limited("lease", "leave it out").err().unwrap();
            assert_eq!(
                refused.to_string(),
                "`lease` cannot be unlimited; leave it out"
            );
        }
        assert!(value("\"5s\"").unwrap().limited("lease", "").is_ok());
        assert!(value("\"unlimitted\"").is_err());
    }
}

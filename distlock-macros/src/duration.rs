//! The values of options that are durations: `"500ms"`, `"5s"`, `"1m30s"`, `0`, or an expression.
//!
//! The grammar is humantime's, limited to the units ms, s, m and h. humantime reads `1M` as a month and accepts `1y`; a
//! lock that waits for a month is a typing error.

use std::time::Duration;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, Lit};

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
        Err(_) => Err(format!(
            "`{name} = {number}` has no unit; write \"{number}s\""
        )),
    }
}

/// Parses a duration. The error says what to write instead.
fn parse(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let mut units = text
        .split(|c: char| !c.is_alphabetic())
        .filter(|u| !u.is_empty());
    if units.clone().next().is_none() && is_number(text) {
        return Err(format!("`{text}` has no unit; write `{}s`", text.trim()));
    }
    if units.clone().any(|unit| unit == "M") {
        let minute = text.replace('M', "m");
        return Err(format!(
            "`M` means month in `{text}`; write `{minute}` for minutes"
        ));
    }
    if !units.all(|unit| matches!(unit, "ms" | "s" | "m" | "h")) {
        return Err(invalid(text));
    }
    humantime::parse_duration(text).map_err(|_| invalid(text))
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok()
}

fn invalid(text: &str) -> String {
    format!("invalid duration `{text}`; expected e.g. `500ms`, `5s`, `1m30s` (units: ms, s, m, h)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_ms_s_m_h() {
        for (text, millis) in [
            ("0", 0),
            (" 0 ", 0),
            ("0s", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
    }

    #[test]
    fn other_durations_are_refused_with_a_suggestion() {
        for (text, message) in [
            ("5", "`5` has no unit; write `5s`"),
            ("1.5", "`1.5` has no unit; write `1.5s`"),
            ("1M", "`M` means month in `1M`; write `1m` for minutes"),
            ("5x", "invalid duration `5x`; expected e.g. `500ms`"),
            ("5sec", "invalid duration `5sec`"),
            ("1d", "invalid duration `1d`"),
            ("1us", "invalid duration `1us`"),
            ("", "invalid duration ``"),
            ("s", "invalid duration `s`"),
            ("-5s", "invalid duration `-5s`"),
            ("5s!", "invalid duration `5s!`"),
            ("99999999999999999999h", "invalid duration"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(message), "{text:?} says {error:?}");
        }
    }
}

//! The values of options that are durations: `"500ms"`, `"5s"`, `"1m30s"`, `0`, or an expression.
//!
//! The grammar is humantime's, limited to the units ms, s, m, h and d. humantime reads `1M` as a month and accepts `1y`; a
//! lock that waits for a month is a typing error. `distlock` reads settings in the same way: a table in `tests` holds both to the
//! same texts.

use std::time::Duration;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprLit, Lit};

/// A longer text is refused.
const MOST_BYTES: usize = 40;

/// A number of more digits is none either.
const MOST_DIGITS: usize = 15;

/// Some thirty million years.
const MOST_SECONDS: u64 = 999_999_999_999_999;

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
        Err(_) if is_number(number) => Err(format!(
            "`{name} = {number}` has no unit; write \"{number}s\""
        )),
        // Its unit is none, such as that of `5min`.
        Err(invalid) => Err(invalid),
    }
}

/// Parses a duration. The error says what to write instead.
fn parse(text: &str) -> Result<Duration, String> {
    // humantime panics for some times at the end of its range.
    if text.len() > MOST_BYTES || most_digits(text) > MOST_DIGITS {
        return Err(invalid(text));
    }
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
    if !units.all(|unit| matches!(unit, "ms" | "s" | "m" | "h" | "d" | "day" | "days")) {
        return Err(invalid(text));
    }
    let read = humantime::parse_duration(text).ok();
    read.filter(|read| read.as_secs() <= MOST_SECONDS)
        .ok_or_else(|| invalid(text))
}

/// The number of digits of the longest number in a text. humantime reads a number with blanks in it.
fn most_digits(text: &str) -> usize {
    let numbers = text.split(|c: char| !c.is_ascii_digit() && !c.is_whitespace());
    let digits = numbers.map(|number| number.chars().filter(char::is_ascii_digit).count());
    digits.max().unwrap_or_default()
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok()
}

fn invalid(text: &str) -> String {
    format!(
        "invalid duration `{text}`; expected e.g. `500ms`, `5s`, `1m30s` (units: ms, s, m, h, d)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts that files and URLs read or refuse as well, and what is said.
    const TEXTS: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/durations.txt"
    ));

    #[test]
    fn durations_are_read_as_files_and_urls_read_them() {
        let lines = TEXTS.lines().filter(|line| !line.starts_with('#'));
        let mut seen = 0;
        for line in lines {
            let (text, expected) = line.split_once(" => ").unwrap();
            let text = text.trim_matches('"');
            match (parse(text), expected.strip_suffix(" ms")) {
                (Ok(read), Some(millis)) => {
                    assert_eq!(read.as_millis().to_string(), millis, "{text:?}");
                }
                (Err(error), None) => {
                    assert!(error.starts_with(expected), "{text:?} says {error:?}");
                }
                (read, _) => panic!("{text:?}: {read:?}, expected {expected}"),
            }
            seen += 1;
        }
        assert!(seen > 15, "{seen} texts");
    }

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
}

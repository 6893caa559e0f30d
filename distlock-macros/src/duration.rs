//! Durations as the options take them: `500ms`, `5s`, `1m30s`, and `0`.
//!
//! The grammar is humantime's with its units cut down to four: it would read `1M` as a month and
//! take `1y`, and a lock that waits for a month is a typing error.

use std::time::Duration;

/// Reads a duration, or says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
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
            "`{text}` is a month; write `{minute}` for a minute"
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
    fn everything_else_is_refused_with_what_to_write() {
        for (text, says) in [
            ("5", "`5` has no unit; write `5s`"),
            ("1.5", "`1.5` has no unit; write `1.5s`"),
            ("1M", "`1M` is a month; write `1m` for a minute"),
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
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(says), "{text:?} says {said:?}");
        }
    }
}

//! Durations as people write them in attributes, files and URLs: `500ms`, `5s`, `1m30s`, `0`.
//!
//! The grammar is humantime's, limited to the units ms, s, m, h and d. The crates `distlock` and `distlock-macros` have this file each,
//! because no crate can import a function from a crate of macros. A test compares the two files.

use std::time::Duration;

/// A longer text is refused.
const MOST_BYTES: usize = 40;

/// A number of more digits is none either.
const MOST_DIGITS: usize = 15;

/// Some thirty million years.
const MOST_SECONDS: u64 = 999_999_999_999_999;

/// Reads a duration. The error says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    // humantime panics for some times at the end of its range.
    if text.len() > MOST_BYTES || most_digits(text) > MOST_DIGITS {
        return Err(invalid(text));
    }
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let mut units = text
        .split(|c: char| !c.is_alphabetic())
        .filter(|unit| !unit.is_empty());
    if units.clone().next().is_none() && text.trim().parse::<f64>().is_ok() {
        return Err(format!("`{text}` has no unit; write `{}s`", text.trim()));
    }
    if units.clone().any(|unit| unit == "M") {
        let minute = text.replace('M', "m");
        return Err(format!(
            "`M` means month in `{text}`; write `{minute}` for minutes"
        ));
    }
    // humantime also reads longer units and other spellings. A lock that waits for a month is a typing error. `days` is how errors
    // write a bound.
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

fn invalid(text: &str) -> String {
    format!(
        "invalid duration `{text}`; expected e.g. `500ms`, `5s`, `1m30s` (units: ms, s, m, h, d)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that are read or refused, and what is said.
    const TEXTS: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/durations.txt"
    ));

    #[test]
    fn durations_are_read_and_refused_as_the_table_says() {
        let lines = TEXTS.lines().filter(|line| !line.starts_with('#'));
        let mut seen = 0;
        for line in lines {
            let (text, expected) = line.split_once(" => ").unwrap();
            let text = text.trim_matches('"');
            match (parse(text), expected.strip_suffix(" ms")) {
                (Ok(read), Some(millis)) => {
                    assert_eq!(read.as_millis().to_string(), millis, "{text:?}")
                }
                (Err(error), None) => {
                    assert!(error.starts_with(expected), "{text:?} says {error:?}")
                }
                (read, _) => panic!("{text:?}: {read:?}, expected {expected}"),
            }
            seen += 1;
        }
        assert!(seen > 15, "{seen} texts");
    }
}

//! The patterns of Redis, byte by byte, as its command SCAN reads them.

/// Whether a text matches a pattern: `*` stands for any bytes, `?` for one byte, `[a-c]` for one of these, `[^a-c]` for one of
/// the others, and `\` takes the next byte as it is. A bracket that is not closed is read as if it were closed at the end. In a
/// range, bytes above 127 come after the others; in Redis that depends on the platform.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut rest = pattern;
    let mut left = text;
    // Where to go on if what follows the last star does not match here: after the star, one byte further in the text. An
    // earlier star need not be tried again, so the time is at most the product of both lengths.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (rest, left) {
            ([b'*', more @ ..], _) => {
                retry = Some((more, left));
                Some((more, left))
            }
            ([], []) => return true,
            ([], _) | (_, []) => None,
            ([_, ..], [byte, after @ ..]) => one(rest, *byte).map(|more| (more, after)),
        };
        (rest, left) = match (step, retry) {
            (Some(step), _) => step,
            (None, Some((more, [_, after @ ..]))) => {
                retry = Some((more, after));
                (more, after)
            }
            (None, _) => return false,
        };
    }
}

/// The rest of a pattern whose first part stands for one byte, if it stands for this one.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// What follows a bracket, if a byte is among those in it.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    rest = loop {
        rest = match rest {
            [] => break rest,
            [b'\\', escaped, rest @ ..] => {
                is_in |= *escaped == byte;
                rest
            }
            [b']', rest @ ..] => break rest,
            [first, b'-', last, rest @ ..] => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
        };
    };
    (is_in != is_negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("order:*", "order:42", true),
            ("order:*", "stock:42", false),
            ("*:42", "order:42", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "", false),
            ("??", "ü", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"[\]]", "]", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("a\\", "a\\", true),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn pattern_of_many_stars_takes_no_time() {
        let pattern = "*a".repeat(2_000) + "b";
        let text = "a".repeat(4_000);
        let start = Instant::now();
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
        // The steps of a search that tries every star again cannot be counted.
        assert!(start.elapsed().as_secs() < 60);
    }
}

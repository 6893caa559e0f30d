//! Names as people can see them.

use std::borrow::Cow;

/// Returns a name in which every character can be seen: of a key, a client or an owner. Anybody who may lock can choose a key.
///
/// Control characters, characters that reverse the direction of writing, invisible ones, and blanks that nobody would notice
/// (at an end, or next to another blank) become escapes as in Rust's strings: `\n`, `\u{202e}`, `\u{20}`. A backslash is
/// doubled, so two different names never look the same for that reason. The name is returned as it is if it has none of these.
///
/// # Examples
/// ```
/// use distlock::visible;
///
/// assert_eq!(visible("order:42"), "order:42");
/// assert_eq!(visible("order:42 "), r"order:42\u{20}");
/// assert_eq!(visible("a\nb"), r"a\nb");
/// assert_eq!(visible("\u{202e}gpj.exe"), r"\u{202e}gpj.exe");
/// ```
pub fn visible(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len() + 8);
    let mut before = None;
    let mut rest = name.chars().peekable();
    while let Some(one) = rest.next() {
        let is_beside_a_blank = before.is_none_or(char::is_whitespace) || rest.peek().is_none();
        let is_seen = match one {
            '\\' => false,
            ' ' => !is_beside_a_blank,
            one => !(one.is_control() || one.is_whitespace() || is_unseen(one)),
        };
        match one {
            one if is_seen => shown.push(one),
            '\\' | '\n' | '\r' | '\t' => shown.extend(one.escape_default()),
            one => shown.extend(one.escape_unicode()),
        }
        before = Some(one);
    }
    if shown == name {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(shown)
    }
}

/// Whether a character has no width or changes the direction of writing.
fn is_unseen(one: char) -> bool {
    matches!(one,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_stays_as_it_is() {
        for name in ["", "order:42", "order 42", "Auftrag:é", "注文:42", "a/b?#c"] {
            assert!(
                matches!(visible(name), Cow::Borrowed(same) if same == name),
                "{name}"
            );
        }
    }

    #[test]
    fn blanks_that_nobody_would_notice_are_escaped() {
        for (name, shown) in [
            (" ", r"\u{20}"),
            (" a", r"\u{20}a"),
            ("a ", r"a\u{20}"),
            ("a  b", r"a \u{20}b"),
            ("a\u{a0}b", r"a\u{a0}b"),
            ("a\u{2028}b", r"a\u{2028}b"),
        ] {
            assert_eq!(visible(name), shown);
        }
    }

    #[test]
    fn characters_that_a_terminal_or_a_page_would_obey_are_escaped() {
        for (name, shown) in [
            ("a\u{1b}[2Jb\nc", r"a\u{1b}[2Jb\nc"),
            ("a\u{202e}cod\u{2066}", r"a\u{202e}cod\u{2066}"),
            ("a\u{200b}b\u{feff}", r"a\u{200b}b\u{feff}"),
            ("a\u{fe0f}b\u{1bca0}", r"a\u{fe0f}b\u{1bca0}"),
            (r"a\nb", r"a\\nb"),
        ] {
            assert_eq!(visible(name), shown);
        }
    }
}

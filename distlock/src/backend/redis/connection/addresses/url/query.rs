//! The query of a URL.

use super::foreign;
use super::text::{decoded, invalid};
use crate::error::Error;

/// The words that only a URL of Sentinels may have.
const SENTINEL_WORDS: [&str; 3] = ["sentinel_user", "sentinel_password", "sentinel_tls"];

/// The words of a query, each until it is read.
pub(super) struct Query<'a> {
    words: Vec<Word<'a>>,
    /// Whether a word may be a piece of a password that is not encoded.
    has_password: bool,
}

struct Word<'a> {
    /// Which word of the query it is. The first one is 1.
    number: usize,
    name: &'a str,
    value: &'a str,
}

impl<'a> Query<'a> {
    /// Reads the words. The URL has a password before its hosts, or has none there.
    pub(super) fn of(query: &'a str, has_password: bool) -> Self {
        let words = query.split('&').filter(|word| !word.is_empty());
        let words = words.zip(1..).map(|(word, number)| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            Word {
                number,
                name,
                value,
            }
        });
        let words: Vec<_> = words.collect();
        let is_password = |word: &Word<'_>| word.name.to_ascii_lowercase().contains("pass");
        let has_password = has_password || words.iter().any(is_password);
        Self {
            words,
            has_password,
        }
    }

    /// Reads a word, in small or capital letters.
    pub(super) fn take(&mut self, word: &str) -> Result<Option<String>, Error> {
        let is_it = |one: &Word<'_>| one.name.eq_ignore_ascii_case(word);
        let Some(at) = self.words.iter().position(is_it) else {
            return Ok(None);
        };
        let Word { value, .. } = self.words.remove(at);
        if self.words.iter().any(is_it) {
            return Err(invalid(format!("`{word}` stands twice in the query")));
        }
        decoded(value, &format!("`{word}`")).map(Some)
    }

    /// Refuses words that were not read. A word of another client is named, because it is one of a list. Another word may be a
    /// piece of a password.
    pub(super) fn is_read(&self) -> Result<(), Error> {
        let Some(Word { number, name, .. }) = self.words.first() else {
            return Ok(());
        };
        let small = name.to_ascii_lowercase();
        if SENTINEL_WORDS.contains(&small.as_str()) {
            let words = SENTINEL_WORDS.map(|word| format!("`{word}`")).join(", ");
            return Err(invalid(format!("{words} are for `redis+sentinel://`")));
        }
        if let Some(advice) = foreign::advice(&small) {
            return Err(invalid(format!(
                "the query has `{small}`, a word of other clients; {advice}"
            )));
        }
        let unknown = if self.has_password {
            format!(
                "word {number} of the query is unknown; it is not shown, since the URL has a password"
            )
        } else {
            format!("the query has the unknown word {name:?}")
        };
        Err(invalid(format!(
            "{unknown}; the words are the names of the settings, such as `wait`, `connect_timeout` and `key_prefix`"
        )))
    }
}

//! The query of a URL.

use super::text::{decoded, invalid};
use crate::error::Error;

/// The words that only a URL of Sentinels may have.
const SENTINEL_WORDS: [&str; 3] = ["sentinel_user", "sentinel_password", "sentinel_tls"];

/// The words of a query, each until it is read.
pub(super) struct Query<'a> {
    words: Vec<(&'a str, &'a str)>,
    /// Whether a word may be a piece of a password that is not encoded.
    has_password: bool,
}

impl<'a> Query<'a> {
    /// Reads the words. The URL has a password before its hosts, or has none there.
    pub(super) fn of(query: &'a str, has_password: bool) -> Self {
        let words = query.split('&').filter(|word| !word.is_empty());
        let words: Vec<_> = words
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .collect();
        let has_password = has_password || words.iter().any(|(word, _)| word.contains("pass"));
        Self {
            words,
            has_password,
        }
    }

    /// Reads a word.
    pub(super) fn take(&mut self, word: &str) -> Result<Option<String>, Error> {
        let Some(at) = self.words.iter().position(|(name, _)| *name == word) else {
            return Ok(None);
        };
        let (_, value) = self.words.swap_remove(at);
        if self.words.iter().any(|(name, _)| *name == word) {
            return Err(invalid(format!("`{word}` stands twice in the query")));
        }
        decoded(value, &format!("`{word}`")).map(Some)
    }

    /// Refuses words that were not read.
    pub(super) fn is_read(&self) -> Result<(), Error> {
        let Some((word, _)) = self.words.first() else {
            return Ok(());
        };
        let words = SENTINEL_WORDS.map(|word| format!("`{word}`")).join(", ");
        Err(invalid(match word {
            word if SENTINEL_WORDS.contains(word) => format!("{words} are for `redis+sentinel://`"),
            word if !self.has_password => format!("the query has the unknown word {word:?}"),
            _ => "the query has an unknown word; in a password write `&` as `%26` and `?` as `%3F`"
                .into(),
        }))
    }
}

//! The settings in the query of a URL.

use super::query::Query;
use super::text::invalid;
use crate::config::Settings;
use crate::error::Error;

/// Reads the words of the table of settings. A value is not quoted in an error: it may be a piece of a password that is not
/// encoded.
pub(super) fn settings(query: &mut Query<'_>) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    for row in Settings::words() {
        let word = row.word;
        let long = query.take(row.word)?;
        let short = row.short.map(|short| Ok((short, query.take(short)?)));
        let (word, text) = match (long, short.transpose()?) {
            (Some(_), Some((short, Some(_)))) => {
                return Err(invalid(format!(
                    "`{short}` is short for `{word}`, and the query has both"
                )));
            }
            (None, Some((short, Some(text)))) => (short, text),
            (Some(text), _) => (word, text),
            (None, _) => continue,
        };
        let read = row.read(&mut settings, &text);
        read.map_err(|wrong| invalid(format!("`{word}` {wrong}")))?;
    }
    Ok(settings)
}

//! The settings in the query of a URL.

use std::time::Duration;

use super::query::Query;
use super::text::{invalid, number};
use crate::config::{PubSub, Settings, parse_duration};
use crate::error::Error;

/// Reads the words that have the names of settings. A value is not quoted in an error: it may be a piece of a password that is
/// not encoded.
pub(super) fn settings(query: &mut Query<'_>) -> Result<Settings, Error> {
    let default_wait = match (duration(query, "default_wait")?, duration(query, "wait")?) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "`wait` is short for `default_wait`, and the query has both",
            ));
        }
        (long, short) => long.or(short),
    };
    Ok(Settings {
        watchdog_timeout: duration(query, "watchdog_timeout")?,
        key_prefix: query.take("key_prefix")?,
        name: query.take("name")?,
        default_wait,
        max_hold: duration(query, "max_hold")?,
        max_waiters: count(query, "max_waiters")?,
        max_total_waiters: count(query, "max_total_waiters")?,
        response_timeout: duration(query, "response_timeout")?,
        unavailable_after: duration(query, "unavailable_after")?,
        waiter_timeout: duration(query, "waiter_timeout")?,
        warn_after: duration(query, "warn_after")?,
        fencing_token_ttl: duration(query, "fencing_token_ttl")?,
        nodelay: one_of(query, "nodelay", [("true", true), ("false", false)])?,
        pub_sub: one_of(
            query,
            "pub_sub",
            [
                ("auto", PubSub::Auto),
                ("both", PubSub::Both),
                ("plain", PubSub::Plain),
            ],
        )?,
        connect_timeout: duration(query, "connect_timeout")?,
        replicas: count(query, "replicas")?,
        replicas_timeout: duration(query, "replicas_timeout")?,
        restart_grace: duration(query, "restart_grace")?,
    })
}

fn duration(query: &mut Query<'_>, word: &str) -> Result<Option<Duration>, Error> {
    let Some(text) = query.take(word)? else {
        return Ok(None);
    };
    let read = parse_duration(&text);
    read.map(Some).map_err(|_| {
        invalid(format!(
            "`{word}` is no duration; expected e.g. `500ms`, `5s`, `1m30s` (units: ms, s, m, h)"
        ))
    })
}

fn count(query: &mut Query<'_>, word: &str) -> Result<Option<u32>, Error> {
    let Some(text) = query.take(word)? else {
        return Ok(None);
    };
    let read = number(&text);
    let wrong = || invalid(format!("`{word}` is not a number from 0 to {}", u32::MAX));
    read.map(Some).ok_or_else(wrong)
}

fn one_of<T, const N: usize>(
    query: &mut Query<'_>,
    word: &str,
    values: [(&str, T); N],
) -> Result<Option<T>, Error> {
    let Some(text) = query.take(word)? else {
        return Ok(None);
    };
    let names = values.each_ref().map(|(name, _)| format!("`{name}`"));
    let found = values.into_iter().find(|(name, _)| *name == text);
    let wrong = || invalid(format!("`{word}` is none of {}", names.join(", ")));
    found.map(|(_, value)| Some(value)).ok_or_else(wrong)
}

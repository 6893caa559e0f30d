//! The settings with plain values, as a file or a URL can have them.

use std::time::Duration;

use super::{ClientName, Config};
#[cfg(feature = "redis")]
use super::{PubSub, Replicas};
use crate::error::Error;

/// The settings of a client that have plain values: those of a [`Builder`](crate::Builder) that a configuration file can have.
///
/// Each field has the name of the builder's method, which says what it means. A field that is `None` leaves the setting as it
/// is.
///
/// With the feature `serde` they can be deserialized. Durations are then texts such as `"500ms"`, `"5s"` or `"1m30s"`, as the
/// attribute reads them, and unknown fields are refused. The query of a
/// [URL](crate::Builder::connect) has the same names and values.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use distlock::{Client, MemoryServer, Settings};
///
/// let mut settings = Settings::default();
/// settings.default_wait = Some(Duration::from_secs(5));
/// let client = Client::builder().settings(settings).in_memory(&MemoryServer::new())?;
/// # Ok::<(), distlock::Error>(())
/// ```
///
/// With the feature `serde`, from a file, such as JSON, TOML or YAML:
///
/// ```
/// # #[cfg(feature = "serde")] fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use distlock::{Client, MemoryServer, Settings};
///
/// let text = r#"{ "default_wait": "5s", "watchdog_timeout": "1m", "max_waiters": 1000 }"#;
/// let settings: Settings = serde_json::from_str(text)?;
/// assert_eq!(settings.watchdog_timeout, Some(Duration::from_secs(60)));
/// let client = Client::builder().settings(settings).in_memory(&MemoryServer::new())?;
/// # Ok(()) }
/// # #[cfg(not(feature = "serde"))] fn main() {}
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Settings {
    /// See [`Builder::watchdog_timeout`](crate::Builder::watchdog_timeout).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub watchdog_timeout: Option<Duration>,
    /// See [`Builder::key_prefix`](crate::Builder::key_prefix).
    pub key_prefix: Option<String>,
    /// See [`Builder::name`](crate::Builder::name).
    pub name: Option<String>,
    /// See [`Builder::default_wait`](crate::Builder::default_wait). A URL or a file may also call it `wait`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "wait", deserialize_with = "super::duration::of_text")
    )]
    pub default_wait: Option<Duration>,
    /// See [`Builder::max_hold`](crate::Builder::max_hold).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub max_hold: Option<Duration>,
    /// See [`Builder::max_waiters`](crate::Builder::max_waiters).
    pub max_waiters: Option<u32>,
    /// See [`Builder::max_total_waiters`](crate::Builder::max_total_waiters).
    pub max_total_waiters: Option<u32>,
    /// See [`Builder::response_timeout`](crate::Builder::response_timeout).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub response_timeout: Option<Duration>,
    /// See [`Builder::unavailable_after`](crate::Builder::unavailable_after).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub unavailable_after: Option<Duration>,
    /// See [`Builder::waiter_timeout`](crate::Builder::waiter_timeout).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub waiter_timeout: Option<Duration>,
    /// See [`Builder::warn_after`](crate::Builder::warn_after).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub warn_after: Option<Duration>,
    /// See [`Builder::fencing_token_ttl`](crate::Builder::fencing_token_ttl).
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub fencing_token_ttl: Option<Duration>,
    /// See [`Builder::nodelay`](crate::Builder::nodelay).
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub nodelay: Option<bool>,
    /// See [`Builder::pub_sub`](crate::Builder::pub_sub). A text is `auto`, `both` or `plain`.
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub pub_sub: Option<PubSub>,
    /// See [`Builder::connect_timeout`](crate::Builder::connect_timeout).
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub connect_timeout: Option<Duration>,
    /// The first argument of [`Builder::replicas`](crate::Builder::replicas). It needs the second one, `replicas_timeout`.
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub replicas: Option<u32>,
    /// The second argument of [`Builder::replicas`](crate::Builder::replicas).
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub replicas_timeout: Option<Duration>,
    /// See [`Builder::restart_grace`](crate::Builder::restart_grace).
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "super::duration::of_text")
    )]
    pub restart_grace: Option<Duration>,
}

impl Settings {
    /// Takes the settings that `later` has, instead of these.
    pub(crate) fn overlay(&mut self, later: Self) {
        // Without `..`, so that the compiler asks for a new field.
        let Self {
            watchdog_timeout,
            key_prefix,
            name,
            default_wait,
            max_hold,
            max_waiters,
            max_total_waiters,
            response_timeout,
            unavailable_after,
            waiter_timeout,
            warn_after,
            #[cfg(feature = "redis")]
            fencing_token_ttl,
            #[cfg(feature = "redis")]
            nodelay,
            #[cfg(feature = "redis")]
            pub_sub,
            #[cfg(feature = "redis")]
            connect_timeout,
            #[cfg(feature = "redis")]
            replicas,
            #[cfg(feature = "redis")]
            replicas_timeout,
            #[cfg(feature = "redis")]
            restart_grace,
        } = later;
        replace(&mut self.watchdog_timeout, watchdog_timeout);
        replace(&mut self.key_prefix, key_prefix);
        replace(&mut self.name, name);
        replace(&mut self.default_wait, default_wait);
        replace(&mut self.max_hold, max_hold);
        replace(&mut self.max_waiters, max_waiters);
        replace(&mut self.max_total_waiters, max_total_waiters);
        replace(&mut self.response_timeout, response_timeout);
        replace(&mut self.unavailable_after, unavailable_after);
        replace(&mut self.waiter_timeout, waiter_timeout);
        replace(&mut self.warn_after, warn_after);
        #[cfg(feature = "redis")]
        {
            replace(&mut self.fencing_token_ttl, fencing_token_ttl);
            replace(&mut self.nodelay, nodelay);
            replace(&mut self.pub_sub, pub_sub);
            replace(&mut self.connect_timeout, connect_timeout);
            replace(&mut self.replicas, replicas);
            replace(&mut self.replicas_timeout, replicas_timeout);
            replace(&mut self.restart_grace, restart_grace);
        }
    }
}

fn replace<T>(setting: &mut Option<T>, later: Option<T>) {
    if later.is_some() {
        *setting = later;
    }
}

fn set<T>(value: &mut T, setting: Option<T>) {
    if let Some(setting) = setting {
        *value = setting;
    }
}

impl Config {
    /// This configuration with these settings.
    pub(crate) fn with(mut self, settings: Settings) -> Result<Self, Error> {
        set(&mut self.watchdog_timeout, settings.watchdog_timeout);
        set(&mut self.key_prefix, settings.key_prefix);
        set(&mut self.name, settings.name.map(ClientName::new));
        replace(&mut self.default_wait, settings.default_wait);
        replace(&mut self.max_hold, settings.max_hold);
        self.max_waiters = settings.max_waiters.or(self.max_waiters);
        set(&mut self.max_total_waiters, settings.max_total_waiters);
        set(&mut self.response_timeout, settings.response_timeout);
        set(&mut self.unavailable_after, settings.unavailable_after);
        set(&mut self.waiter_timeout, settings.waiter_timeout);
        set(&mut self.warn_after, settings.warn_after);
        #[cfg(feature = "redis")]
        {
            replace(&mut self.fencing_token_ttl, settings.fencing_token_ttl);
            set(&mut self.nodelay, settings.nodelay);
            set(&mut self.pub_sub, settings.pub_sub);
            set(&mut self.connect_timeout, settings.connect_timeout);
            set(&mut self.restart_grace, settings.restart_grace);
            let replicas = match (settings.replicas, settings.replicas_timeout) {
                (Some(count), Some(timeout)) => Some(Replicas { count, timeout }),
                (None, None) => None,
                (Some(_), None) => return Err(missing("replicas_timeout", "replicas")),
                (None, Some(_)) => return Err(missing("replicas", "replicas_timeout")),
            };
            replace(&mut self.replicas, replicas);
        }
        Ok(self)
    }
}

/// The error of a setting without the one that it needs.
#[cfg(feature = "redis")]
fn missing(setting: &'static str, by: &'static str) -> Error {
    Error::InvalidConfig {
        setting,
        value: format!("nothing, which `{by}` needs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn later_settings_count_and_missing_ones_change_nothing() {
        let mut settings = Settings {
            default_wait: Some(SECOND),
            max_waiters: Some(1),
            ..Settings::default()
        };
        settings.overlay(Settings {
            max_waiters: Some(2),
            warn_after: Some(2 * SECOND),
            ..Settings::default()
        });
        let config = Config::default().with(settings).unwrap();
        assert_eq!(config.default_wait, Some(SECOND));
        assert_eq!(config.max_waiters, Some(2));
        assert_eq!(config.warn_after, 2 * SECOND);
        assert_eq!(config.response_timeout, Config::default().response_timeout);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn replicas_need_a_timeout() {
        for (settings, says) in [
            (
                Settings {
                    replicas: Some(1),
                    ..Settings::default()
                },
                "replicas_timeout",
            ),
            (
                Settings {
                    replicas_timeout: Some(SECOND),
                    ..Settings::default()
                },
                "replicas",
            ),
        ] {
            let error = Config::default().with(settings).unwrap_err();
            let is_named = matches!(error, Error::InvalidConfig { setting, .. } if setting == says);
            assert!(is_named, "{error}");
        }
    }

    #[cfg(all(feature = "redis", feature = "serde"))]
    #[test]
    fn each_field_is_read_from_a_text() {
        let text = r#"{
            "watchdog_timeout": "1m30s", "key_prefix": "shop:", "name": "orders", "wait": "500ms", "max_hold": "2h",
            "max_waiters": 1, "max_total_waiters": 2, "response_timeout": "1.5s", "unavailable_after": "3s",
            "waiter_timeout": "4s", "warn_after": "5s", "fencing_token_ttl": "6h", "nodelay": true, "pub_sub": "both",
            "connect_timeout": "7s", "replicas": 8, "replicas_timeout": "9s", "restart_grace": 0
        }"#;
        let read: Settings = serde_json::from_str(text).unwrap();
        let expected = Settings {
            watchdog_timeout: Some(90 * SECOND),
            key_prefix: Some("shop:".to_owned()),
            name: Some("orders".to_owned()),
            default_wait: Some(SECOND / 2),
            max_hold: Some(7_200 * SECOND),
            max_waiters: Some(1),
            max_total_waiters: Some(2),
            response_timeout: Some(SECOND * 3 / 2),
            unavailable_after: Some(3 * SECOND),
            waiter_timeout: Some(4 * SECOND),
            warn_after: Some(5 * SECOND),
            fencing_token_ttl: Some(21_600 * SECOND),
            nodelay: Some(true),
            pub_sub: Some(PubSub::Both),
            connect_timeout: Some(7 * SECOND),
            replicas: Some(8),
            replicas_timeout: Some(9 * SECOND),
            restart_grace: Some(Duration::ZERO),
        };
        assert_eq!(read, expected);
        let nothing: Settings =
            serde_json::from_str(r#"{ "name": null, "max_hold": null }"#).unwrap();
        assert_eq!(nothing, Settings::default());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn wrong_fields_are_refused_by_name_and_values_with_what_to_write() {
        for (text, says) in [
            (r#"{ "weit": "5s" }"#, "unknown field `weit`"),
            (
                r#"{ "wait": "5s", "default_wait": "5s" }"#,
                "duplicate field `default_wait`",
            ),
            (r#"{ "wait": "5" }"#, "`5` has no unit; write `5s`"),
            (r#"{ "wait": 5 }"#, "`5` has no unit; write `5s`"),
            (r#"{ "wait": "1M" }"#, "write `1m` for minutes"),
            (r#"{ "wait": -1 }"#, "expected a duration such as"),
            (r#"{ "wait": true }"#, "expected a duration such as"),
            (r#"{ "max_waiters": "many" }"#, "expected u32"),
        ] {
            let error = serde_json::from_str::<Settings>(text).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }
}

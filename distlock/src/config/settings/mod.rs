//! The settings with plain values, as a file or a URL can have them, and what they do to a client's configuration.

#[cfg(feature = "serde")]
mod deserialize;
#[macro_use]
mod macros;
mod table;
mod value;

use self::table::replace;
pub use self::table::{SettingWord, Settings};
#[cfg(feature = "redis")]
use super::Confirmation;
#[cfg(feature = "redis")]
use super::address_map::AddressMap;
use super::{ClientName, Config};
use crate::error::Error;

fn set<T>(value: &mut T, setting: Option<T>) {
    if let Some(setting) = setting {
        *value = setting;
    }
}

impl Config {
    pub(crate) fn with(mut self, mut settings: Settings) -> Result<Self, Error> {
        set(&mut self.watchdog_timeout, settings.watchdog_timeout);
        set(&mut self.lease_margin, settings.lease_margin);
        set(&mut self.key_prefix, settings.key_prefix.take());
        set(&mut self.name, settings.name.take().map(ClientName::new));
        replace(&mut self.default_wait, settings.default_wait);
        replace(&mut self.max_hold, settings.max_hold);
        self.max_waiters = settings.max_waiters.or(self.max_waiters);
        set(&mut self.max_total_waiters, settings.max_total_waiters);
        set(&mut self.response_timeout, settings.response_timeout);
        set(&mut self.unavailable_after, settings.unavailable_after);
        set(&mut self.waiter_timeout, settings.waiter_timeout);
        set(&mut self.warn_after, settings.warn_after);
        #[cfg(feature = "redis")]
        self.connect_with(settings)?;
        Ok(self)
    }

    /// Takes the settings of connections.
    #[cfg(feature = "redis")]
    fn connect_with(&mut self, settings: Settings) -> Result<(), Error> {
        replace(&mut self.fencing_token_ttl, settings.fencing_token_ttl);
        set(&mut self.nodelay, settings.nodelay);
        set(&mut self.track_holds, settings.track_holds);
        set(&mut self.pub_sub, settings.pub_sub);
        set(&mut self.connect_timeout, settings.connect_timeout);
        set(&mut self.ping_interval, settings.ping_interval);
        set(&mut self.look_up_interval, settings.look_up_interval);
        // A function that the program has set decides alone.
        if let (None, Some(path)) = (&self.address_map, settings.map_file) {
            self.address_map = Some(AddressMap::File(path));
        }
        set(&mut self.restart_grace, settings.restart_grace);
        set(
            &mut self.credentials_interval,
            settings.credentials_interval,
        );
        replace(&mut self.password_file, settings.password_file);
        replace(
            &mut self.sentinel_password_file,
            settings.sentinel_password_file,
        );
        replace(&mut self.tls.files.ca, settings.tls_ca_file);
        if settings.tls_client_cert_file.is_some() != settings.tls_client_key_file.is_some() {
            return Err(match settings.tls_client_key_file {
                None => missing("tls_client_key_file", "tls_client_cert_file"),
                Some(_) => missing("tls_client_cert_file", "tls_client_key_file"),
            });
        }
        replace(
            &mut self.tls.files.client_cert,
            settings.tls_client_cert_file,
        );
        replace(&mut self.tls.files.client_key, settings.tls_client_key_file);
        replace(&mut self.tls.server_name, settings.tls_server_name);
        let confirmation = match (settings.replicas, settings.replicas_timeout) {
            (Some(replicas), Some(timeout)) => Some(Confirmation {
                replicas,
                timeout,
                on_disk: settings.replicas_on_disk.unwrap_or_default(),
            }),
            (None, None) if settings.replicas_on_disk == Some(true) => {
                return Err(missing("replicas", "replicas_on_disk"));
            }
            (None, None) => None,
            (Some(_), None) => return Err(missing("replicas_timeout", "replicas")),
            (None, Some(_)) => return Err(missing("replicas", "replicas_timeout")),
        };
        replace(&mut self.confirmation, confirmation);
        Ok(())
    }
}

/// The error of a setting without the one that it needs.
#[cfg(feature = "redis")]
fn missing(setting: &'static str, by: &'static str) -> Error {
    let expected = format!("a value, because `{by}` has one");
    Error::invalid_config(setting, "nothing", expected)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    #[cfg(all(feature = "redis", feature = "serde"))]
    use crate::config::PubSub;
    #[cfg(feature = "redis")]
    use crate::config::Replicas;

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
                    replicas: Some(Replicas::Count(1)),
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
    fn field_of_each_type_is_read_from_a_file() {
        let text = r#"{
            "key_prefix": "shop:", "wait": "500ms", "max_waiters": 1, "nodelay": true, "track_holds": "false",
            "pub_sub": "both", "replicas": 8, "restart_grace": 0
        }"#;
        let read: Settings = serde_json::from_str(text).unwrap();
        // The others are read as these are: the table has a test of each row.
        let expected = Settings {
            key_prefix: Some("shop:".to_owned()),
            default_wait: Some(SECOND / 2),
            max_waiters: Some(1),
            nodelay: Some(true),
            track_holds: Some(false),
            pub_sub: Some(PubSub::Both),
            replicas: Some(Replicas::Count(8)),
            restart_grace: Some(Duration::ZERO),
            ..Settings::default()
        };
        assert_eq!(read, expected);
        let nothing: Settings =
            serde_json::from_str(r#"{ "name": null, "max_hold": null }"#).unwrap();
        assert_eq!(nothing, Settings::default());
    }

    #[test]
    fn what_the_error_of_a_range_says_to_write_is_read() {
        for word in ["wait", "max_hold", "warn_after"] {
            let mut settings = Settings::default();
            settings.set(word, "unlimited").unwrap();
            let server = crate::MemoryServer::new();
            let client = crate::Builder::from(settings).in_memory(&server);
            assert!(client.is_ok(), "{word}: {client:?}");
        }
        let mut settings = Settings::default();
        settings.set("wait", "365days").unwrap();
        assert_eq!(settings.default_wait, Some(31_536_000 * SECOND));
        settings.set("wait", "366d").unwrap();
        let refused = crate::Builder::from(settings).in_memory(&crate::MemoryServer::new());
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("at most 365days, or `unlimited`"), "{text}");
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
            (r#"{ "wait": -1 }"#, "`-1` has no unit"),
            (r#"{ "wait": true }"#, "invalid duration `true`"),
            (r#"{ "max_waiters": "many" }"#, "`many` is not a number"),
        ] {
            let error = serde_json::from_str::<Settings>(text).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }
}

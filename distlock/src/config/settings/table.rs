//! The table of the settings: each that a text can say has a row here, and from this row its word in a URL, its field in
//! [`Settings`] and in a file, and its option on the command line.
//!
//! For a new setting write a row, and the method of [`Builder`](crate::Builder) that sets its field; then its effect in
//! [`Config::with`](crate::config::Config::with), and its line in the table of `guide/connections.md`. The tests beside this
//! file compare them. A value of a new type needs an `impl Value`. A secret has no row: the path of the file that it is in has one.

use std::fmt;
#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::time::Duration;

use super::value::Value;
#[cfg(feature = "redis")]
use crate::config::{PubSub, Replicas};
use crate::error::Error;

settings! {
    /// The settings of a client that have plain values: those of a [`Builder`](crate::Builder) that a configuration file can have.
    ///
    /// Each field has the name of the builder's method, which says what it means. A field that is `None` leaves the setting as it
    /// is.
    ///
    /// With the feature `serde` they can be deserialized. Durations are then texts such as `"500ms"`, `"5s"` or `"1m30s"`, as the
    /// attribute reads them, or `"unlimited"` for [`Duration::MAX`], and unknown fields are refused. The query of a
    /// [URL](crate::Builder::connect) has the same names and values, and so has [`set`](Settings::set).
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
    every_client {
        watchdog_timeout: Duration, "The lease of holds that the watchdog renews";
        lease_margin: Duration, "How long before its lease ends in the server a hold counts as ended";
        key_prefix: String, "A prefix for the names of all keys in the server";
        name: String, "The name under which the server lists the client";
        /// A URL or a file may also call it `wait`.
        default_wait or wait: Duration, "How long acquisitions wait that do not say it";
        max_hold: Duration, "The longest time for which the watchdog renews a hold";
        max_waiters: u32, "How many acquisitions may wait for one key";
        max_total_waiters: u32, "How many acquisitions may wait for all keys together";
        response_timeout: Duration, "How long the server may take for the answer to one command";
        unavailable_after: Duration, "For how long a call is retried without any answer";
        waiter_timeout: Duration, "How long a silent waiter of a fair lock keeps its place";
        warn_after: Duration, "After which time a warning reports an acquisition that still waits";
    }
    clients_of_servers {
        fencing_token_ttl: Duration, "How long the server keeps the token of a fenced lock that is no longer used";
        nodelay: bool, "Whether small commands are sent at once (TCP_NODELAY)";
        track_holds: bool, "Whether servers tell at once that a hold may be lost (CLIENT TRACKING)";
        pub_sub: PubSub, "How clients of a cluster tell each other that a lock is free";
        look_up_interval: Duration, "How often the names of servers are looked up again (0 is never)";
        map_file: PathBuf, "File of lines: an address that servers announce, and the one at which it is reached";
        ping_interval: Duration, "How often a connection asks for a sign of life (0 is never)";
        connect_timeout: Duration, "How long a connection may take, with TLS and the login";
        /// It needs `replicas_timeout`.
        replicas: Replicas, "How many replicas confirm each grant: a number, or as many as are connected";
        /// It needs `replicas`.
        replicas_timeout by replicas: Duration, "How long the replicas may take to confirm";
        /// It needs `replicas`.
        replicas_on_disk: bool, "Whether a grant has to be in the append-only files as well";
        restart_grace: Duration, "How long a server that was started grants nothing";
        /// The user is that of the URL, which may stand there without a password.
        password_file: PathBuf, "File of the password, which is read again for each connection";
        /// The user is `sentinel_user` in the URL.
        sentinel_password_file: PathBuf, "File of the password for the Sentinels, which is read again for each connection";
        credentials_interval: Duration, "How often a changed password is sent over connections that stand; 0 is never";
        tls_ca_file: PathBuf, "File (PEM) of the authorities that have issued the servers' certificates";
        /// It needs `tls_client_key_file`.
        tls_client_cert_file by tls_client_files: PathBuf, "File (PEM) of the client's own certificate";
        /// It needs `tls_client_cert_file`.
        tls_client_key_file by tls_client_files: PathBuf, "File (PEM) of the private key of the client's certificate";
        tls_server_name: String, "The name in the servers' certificates, instead of the host";
    }
}

/// Replaces a setting that a later source has set.
pub(super) fn replace<T>(setting: &mut Option<T>, later: Option<T>) {
    if later.is_some() {
        *setting = later;
    }
}

/// How a text says a setting: in the query of a URL, in a file, and for [`Settings::set`].
///
/// # Examples
/// See [`Settings::words`].
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct SettingWord {
    /// The word, which is the name of the field.
    pub word: &'static str,
    /// A shorter word for the same.
    pub short: Option<&'static str>,
    /// What the value is, as the help of a command line writes it, such as `TIME`.
    pub value: &'static str,
    /// What it sets, in one line.
    pub about: &'static str,
    /// What is wrong with a text that cannot be read, without the text.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "errors of URLs have it")
    )]
    expected: &'static str,
    pub(super) read: fn(&mut Settings, &str) -> Result<(), String>,
    /// The value as a text.
    #[cfg_attr(
        not(any(test, all(feature = "test-util", feature = "redis"))),
        allow(dead_code, reason = "only tests write settings")
    )]
    pub(crate) text: fn(&Settings) -> Option<String>,
}

impl SettingWord {
    /// Reads the value. The error quotes nothing, because a text in a URL may be a piece of a password.
    #[cfg(feature = "redis")]
    pub(crate) fn read(&self, settings: &mut Settings, text: &str) -> Result<(), &'static str> {
        (self.read)(settings, text).map_err(|_| self.expected)
    }

    /// Sets this setting to the value that a text says.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`]: the text cannot be read. The error quotes it, and says what to write.
    ///
    /// # Examples
    /// ```
    /// use distlock::Settings;
    ///
    /// let mut settings = Settings::default();
    /// for setting in Settings::words() {
    ///     if let Ok(text) = std::env::var(format!("LOCKS_{}", setting.word.to_uppercase())) {
    ///         setting.set(&mut settings, &text)?;
    ///     }
    /// }
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), Error> {
        (self.read)(settings, text).map_err(|wrong| Error::invalid_config(self.word, wrong, ""))
    }
}

impl fmt::Debug for SettingWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingWord")
            .field("word", &self.word)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The words of all settings, for a program that offers them on its own command line or reads them from its environment.
    ///
    /// # Examples
    /// ```
    /// use distlock::Settings;
    ///
    /// for setting in Settings::words() {
    ///     println!("--{} <{}>  {}", setting.word, setting.value, setting.about);
    /// }
    /// ```
    pub fn words() -> &'static [SettingWord] {
        TABLE
    }

    /// Sets the setting of this word to the value that a text says.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`]: there is no such word, or its value cannot be read. Values out of range are reported when the
    /// client is made.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock::Settings;
    ///
    /// let mut settings = Settings::default();
    /// settings.set("wait", "1m30s")?;
    /// assert_eq!(settings.default_wait, Some(Duration::from_secs(90)));
    /// assert!(settings.set("wait", "soon").is_err());
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn set(&mut self, word: &str, text: &str) -> Result<(), Error> {
        let row = Self::row(word).ok_or_else(|| {
            Error::invalid_config("settings", format!("the unknown word `{word}`"), "")
        })?;
        row.set(self, text)
    }

    /// The row of this word, or of this short one.
    pub(super) fn row(word: &str) -> Option<&'static SettingWord> {
        let is_it = |row: &&SettingWord| row.word == word || row.short == Some(word);
        TABLE.iter().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_method_of_the_builder_and_a_line_in_the_guide() {
        const BUILDER: &str = concat!(
            include_str!("../../client/builder/mod.rs"),
            include_str!("../../client/builder/waits.rs"),
            include_str!("../../client/builder/connections.rs"),
            include_str!("../../client/builder/credentials.rs"),
            include_str!("../../client/builder/tls.rs"),
            include_str!("../../client/builder/address_map.rs"),
        );
        const GUIDE: &str = include_str!("../../guide/connections.md");
        for (word, method) in METHODS {
            let sets = format!("self.settings.{word} = Some(");
            let has_method = BUILDER.contains(&format!("pub fn {method}("));
            assert!(
                has_method && BUILDER.contains(&sets),
                "{word}: no `{method}` sets it"
            );
            assert!(
                GUIDE.contains(&format!("`{word}`")),
                "{word}: not in guide/connections.md"
            );
        }
        let sets = BUILDER.matches("self.settings.").count();
        // `settings` itself overlays.
        assert_eq!(sets, METHODS.len() + 1, "a method sets what has no row");
    }

    #[test]
    fn words_are_different_and_in_small_letters() {
        let mut words: Vec<_> = TABLE.iter().map(|row| row.word).collect();
        words.extend(TABLE.iter().filter_map(|row| row.short));
        let is_small = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(words.iter().all(is_small), "{words:?}");
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count, "{words:?}");
    }

    #[test]
    fn text_of_each_value_is_read_as_that_value() {
        for row in TABLE {
            let text = match row.value {
                "TIME" => "1m30s",
                "NUMBER" | "NUMBER|connected" => "7",
                "TEXT" | "FILE" => "text",
                choice => choice.split('|').next_back().unwrap(),
            };
            let mut settings = Settings::default();
            settings.set(row.word, text).unwrap();
            let written = (row.text)(&settings).expect("it was set");
            let mut again = Settings::default();
            settings.set(row.word, &written).unwrap();
            again.set(row.short.unwrap_or(row.word), &written).unwrap();
            assert_eq!(again, settings, "{}", row.word);
            assert_ne!(again, Settings::default(), "{}", row.word);
            if !["TEXT", "FILE"].contains(&row.value) {
                let wrong = again.set(row.word, "-1").unwrap_err().to_string();
                assert!(wrong.contains(row.word) && wrong.contains("-1"), "{wrong}");
            }
        }
    }
}

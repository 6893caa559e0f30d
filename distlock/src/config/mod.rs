//! The settings of a client.

#[cfg(feature = "redis")]
pub(crate) mod address_map;
mod checks;
mod constants;
#[cfg(feature = "redis")]
pub(crate) mod credentials;
mod duration;
#[cfg(feature = "redis")]
pub(crate) mod look_up;
mod name;
#[cfg(feature = "_tls")]
pub(crate) mod pem;
mod settings;
#[cfg(feature = "redis")]
pub(crate) mod source;

#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "redis")]
use self::address_map::AddressMap;
pub(crate) use self::checks::*;
use self::checks::{TIMES_OR_MAX, check_timeout, checked_margin};
pub(crate) use self::constants::*;
#[cfg(feature = "redis")]
use self::credentials::CredentialsSource;
#[cfg(feature = "redis")]
use self::look_up::LookUp;
pub(crate) use self::name::ClientName;
#[cfg(feature = "_tls")]
use self::pem::{ClientPem, Pem};
pub use self::settings::{SettingWord, Settings};
#[cfg(feature = "_tls")]
use self::source::Source;
use crate::error::Error;

/// How many acquisitions of one client may wait at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxWaiters {
    /// For one key.
    pub(crate) per_key: u32,
    /// For all keys together.
    pub(crate) total: u32,
}

/// How many replicas of its server confirm each grant. See [`Builder::replicas`](crate::Builder::replicas).
///
/// # Examples
/// ```
/// use distlock::Replicas;
///
/// assert_eq!(Replicas::from(2), Replicas::Count(2));
/// ```
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// So many, at least 1. If fewer are connected, nothing is granted.
    Count(u32),
    /// As many as are connected to the server at that moment. If there are none, nobody has to confirm. This is what Redisson
    /// does outside of a single server.
    Connected,
}

#[cfg(feature = "redis")]
impl From<u32> for Replicas {
    fn from(count: u32) -> Self {
        Self::Count(count)
    }
}

/// What has to confirm each grant.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    pub(crate) replicas: Replicas,
    /// How long they may take.
    pub(crate) timeout: Duration,
    /// Whether the grant has to be on the disks where the server has an append-only file.
    pub(crate) on_disk: bool,
}

/// The files of certificates and keys, which are read again for each connection.
#[cfg(feature = "redis")]
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "_tls"),
    allow(dead_code, reason = "without TLS they have no effect")
)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client_cert: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}

/// Names the class of a key.
#[cfg(feature = "metrics")]
pub(crate) type KeyClass = fn(&str) -> &'static str;

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) watchdog_timeout: Duration,
    /// In whole milliseconds.
    pub(crate) lease_margin: Duration,
    pub(crate) key_prefix: String,
    pub(crate) name: ClientName,
    pub(crate) default_wait: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: Option<u32>,
    pub(crate) max_total_waiters: u32,
    pub(crate) response_timeout: Duration,
    pub(crate) unavailable_after: Duration,
    pub(crate) waiter_timeout: Duration,
    pub(crate) warn_after: Duration,
    #[cfg(feature = "metrics")]
    pub(crate) metrics_key_class: Option<KeyClass>,
    #[cfg(feature = "redis")]
    pub(crate) fencing_token_ttl: Option<Duration>,
    #[cfg(feature = "redis")]
    pub(crate) nodelay: bool,
    #[cfg(feature = "redis")]
    pub(crate) pub_sub: PubSub,
    #[cfg(feature = "redis")]
    pub(crate) connect_timeout: Duration,
    #[cfg(feature = "redis")]
    pub(crate) confirmation: Option<Confirmation>,
    #[cfg(feature = "redis")]
    pub(crate) restart_grace: Duration,
    /// How often a connection asks for a sign of life; zero is never.
    #[cfg(feature = "redis")]
    pub(crate) ping_interval: Duration,
    /// How often the names of servers are looked up again; zero is never.
    #[cfg(feature = "redis")]
    pub(crate) look_up_interval: Duration,
    /// Who is asked for the addresses of names.
    #[cfg(feature = "redis")]
    pub(crate) look_up: LookUp,
    /// Where the addresses are reached that nodes of a cluster and Sentinels announce.
    #[cfg(feature = "redis")]
    pub(crate) address_map: Option<AddressMap>,
    /// Instead of those in the URL.
    #[cfg(feature = "redis")]
    pub(crate) credentials: Option<CredentialsSource>,
    /// How often a function is asked again for the credentials of connections that stand; zero is never.
    #[cfg(feature = "redis")]
    pub(crate) credentials_interval: Duration,
    /// The file of the password, unless there are `credentials`.
    #[cfg(feature = "redis")]
    pub(crate) password_file: Option<PathBuf>,
    /// The file of the password for the Sentinels.
    #[cfg(feature = "redis")]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// The certificates of the authorities that issue those of the servers, instead of the system's.
    #[cfg(feature = "_tls")]
    pub(crate) tls_ca_pem: Option<Source<Pem>>,
    #[cfg(feature = "_tls")]
    pub(crate) tls_client_pem: Option<Source<ClientPem>>,
    #[cfg(feature = "redis")]
    pub(crate) files: TlsFiles,
    /// The name in the servers' certificates, instead of the host of each address.
    #[cfg(feature = "redis")]
    pub(crate) tls_server_name: Option<String>,
}

/// How clients of a cluster tell each other that a lock is free. See [`Builder::pub_sub`](crate::Builder::pub_sub).
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum PubSub {
    /// By sharded messages (SPUBLISH, SSUBSCRIBE) if the servers have them, and by plain ones otherwise. Redisson does the
    /// same since version 3.22. The default.
    #[default]
    Auto,
    /// By sharded and by plain messages, for a time in which old and new clients use the same locks. Each release is sent to
    /// every node. Servers without sharded messages get plain ones only.
    Both,
    /// By plain messages (PUBLISH, SUBSCRIBE), as Redisson did before version 3.22, and does with
    /// `shardedSubscriptionMode: OFF`. Each release is sent to every node.
    Plain,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: WATCHDOG_TIMEOUT,
            lease_margin: Duration::ZERO,
            key_prefix: String::new(),
            name: ClientName::default(),
            default_wait: None,
            max_hold: None,
            max_waiters: None,
            max_total_waiters: u32::MAX,
            response_timeout: RESPONSE_TIMEOUT,
            unavailable_after: UNAVAILABLE_AFTER,
            waiter_timeout: WAITER_TIMEOUT,
            warn_after: WARN_AFTER,
            #[cfg(feature = "metrics")]
            metrics_key_class: None,
            #[cfg(feature = "redis")]
            fencing_token_ttl: None,
            #[cfg(feature = "redis")]
            nodelay: false,
            #[cfg(feature = "redis")]
            pub_sub: PubSub::Auto,
            #[cfg(feature = "redis")]
            connect_timeout: CONNECT_TIMEOUT,
            #[cfg(feature = "redis")]
            confirmation: None,
            #[cfg(feature = "redis")]
            restart_grace: Duration::ZERO,
            #[cfg(feature = "redis")]
            ping_interval: PING_INTERVAL,
            #[cfg(feature = "redis")]
            look_up_interval: LOOK_UP_INTERVAL,
            #[cfg(feature = "redis")]
            look_up: LookUp::default(),
            #[cfg(feature = "redis")]
            address_map: None,
            #[cfg(feature = "redis")]
            credentials: None,
            #[cfg(feature = "redis")]
            credentials_interval: CREDENTIALS_INTERVAL,
            #[cfg(feature = "redis")]
            password_file: None,
            #[cfg(feature = "redis")]
            sentinel_password_file: None,
            #[cfg(feature = "_tls")]
            tls_ca_pem: None,
            #[cfg(feature = "_tls")]
            tls_client_pem: None,
            #[cfg(feature = "redis")]
            files: TlsFiles::default(),
            #[cfg(feature = "redis")]
            tls_server_name: None,
        }
    }
}

#[cfg(feature = "redis")]
impl Confirmation {
    fn check(self) -> Result<(), Error> {
        if let Replicas::Count(count @ 0) = self.replicas {
            return Err(Error::invalid_config("replicas", count, "1 or more"));
        }
        // WAIT counts in milliseconds, and takes 0 for no limit.
        if self.timeout < Duration::from_millis(1) || self.timeout > MAX_WAIT {
            return Err(Error::invalid_time(
                "replicas_timeout",
                self.timeout,
                "1ms to 365days",
            ));
        }
        Ok(())
    }
}

impl Config {
    /// Whether a waiter hears of a release once. With `PubSub::Both` it hears of it in both ways.
    #[cfg(feature = "redis")]
    pub(crate) fn has_one_message_per_release(&self) -> bool {
        self.pub_sub != PubSub::Both
    }

    /// Whether a waiter hears of a release once.
    #[cfg(not(feature = "redis"))]
    #[allow(
        clippy::unused_self,
        reason = "it depends on a setting of the feature `redis`"
    )]
    pub(crate) fn has_one_message_per_release(&self) -> bool {
        true
    }

    /// Rejects settings that cannot work, and limits the response timeout to its fraction of the lease.
    pub(crate) fn validated(mut self) -> Result<Self, Error> {
        check_hold("watchdog_timeout", self.watchdog_timeout)?;
        self.lease_margin = checked_margin(self.lease_margin, self.watchdog_timeout)?;
        self.name.check()?;
        // Kept as it is: a wait without limit that was asked for is another thing than one that nobody set.
        if let Err(Error::InvalidWait { wait }) = checked_wait(self.default_wait) {
            return Err(Error::invalid_time("default_wait", wait, TIMES_OR_MAX));
        }
        self.max_hold = checked_max_hold(self.max_hold)?;
        for limit in [&mut self.response_timeout, &mut self.unavailable_after] {
            if *limit == Duration::MAX {
                // Times are computed from these two, so they need an end.
                *limit = MAX_WAIT;
            }
        }
        for (what, value) in [
            ("response_timeout", self.response_timeout),
            ("unavailable_after", self.unavailable_after),
            ("waiter_timeout", self.waiter_timeout),
        ] {
            check_timeout(what, value)?;
        }
        if self.warn_after.is_zero() {
            let expected = "more than 0, or `Duration::MAX` for no warning";
            return Err(Error::invalid_time("warn_after", self.warn_after, expected));
        }
        #[cfg(feature = "redis")]
        self.check_connections()?;
        let most = self.watchdog_timeout / RESPONSE_TIMEOUTS_PER_LEASE;
        let most = most.max(MIN_LEASE).min(self.unavailable_after);
        self.response_timeout = self.response_timeout.min(most);
        Ok(self)
    }

    /// Rejects settings of connections that cannot work. A time that is as good as never is shortened to one that can be added.
    #[cfg(feature = "redis")]
    fn check_connections(&mut self) -> Result<(), Error> {
        self.fencing_token_ttl = self.fencing_token_ttl.filter(|ttl| *ttl != Duration::MAX);
        if let Some(ttl) = self.fencing_token_ttl {
            check_hold("fencing_token_ttl", ttl)?;
        }
        if self.connect_timeout == Duration::MAX {
            self.connect_timeout = MAX_WAIT;
        }
        check_timeout("connect_timeout", self.connect_timeout)?;
        if let Some(confirmation) = self.confirmation {
            confirmation.check()?;
        }
        // Longer ones are as good as never.
        self.look_up_interval = self.look_up_interval.min(MAX_WAIT);
        if self.credentials_interval > MAX_WAIT {
            return Err(Error::invalid_time(
                "credentials_interval",
                self.credentials_interval,
                "at most 365days",
            ));
        }
        self.ping_interval = self.ping_interval.min(MAX_WAIT);
        if self.restart_grace > MAX_WAIT {
            let expected = "at most 365days";
            return Err(Error::invalid_time(
                "restart_grace",
                self.restart_grace,
                expected,
            ));
        }
        Ok(())
    }

    /// Refuses settings that are for TLS: it is not used, and who has set them counts on it.
    #[cfg(feature = "redis")]
    pub(crate) fn check_without_tls(&self) -> Result<(), Error> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let set = [
            ("tls_ca_file", path(&self.files.ca)),
            ("tls_client_cert_file", path(&self.files.client_cert)),
            ("tls_server_name", self.tls_server_name.clone()),
            #[cfg(feature = "_tls")]
            (
                "tls_ca_pem",
                self.tls_ca_pem.as_ref().map(|_| "a PEM".to_owned()),
            ),
            #[cfg(feature = "_tls")]
            (
                "tls_client_pem",
                self.tls_client_pem.as_ref().map(|_| "a PEM".to_owned()),
            ),
        ];
        let mut set = set
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)));
        match set.next() {
            None => Ok(()),
            Some((setting, value)) => {
                let expected = "a URL with TLS, such as `rediss://`, or no such setting";
                Err(Error::invalid_config(setting, value, expected))
            }
        }
    }

    /// [`OWNERS_REMEMBERED`] for this client's lease.
    #[cfg(feature = "redis")]
    pub(crate) fn owners_remembered(&self) -> Duration {
        self.watchdog_timeout
    }

    /// [`REQUESTS_REMEMBERED`] for this client's timeouts.
    #[cfg(feature = "redis")]
    pub(crate) fn requests_remembered(&self) -> Duration {
        (self.unavailable_after + self.response_timeout) * 2
    }

    /// How long the server remembers that an owner has ended, or its answer to a request. After this time no copy of
    /// the command can arrive any more: the client resends a command for `unavailable_after`, and the last copy is late
    /// by at most one watchdog lease. Late attempts of locks are cleaned up within the same lease.
    pub(crate) fn remembered(&self) -> Duration {
        self.unavailable_after + self.watchdog_timeout
    }

    /// How long the server remembers that a latch was opened. A waiter that is not connected looks within the first of these
    /// times, and fails as unavailable when the others are over.
    pub(crate) fn opening_remembered(&self) -> Duration {
        MAX_SLEEP_WITHOUT_MESSAGE + self.response_timeout + self.unavailable_after
    }

    /// [`CONCLUSIVE_SILENCE`], or less if a command may go unanswered for a short time only.
    pub(crate) fn conclusive_silence(&self) -> Duration {
        CONCLUSIVE_SILENCE.min(self.response_timeout / 4)
    }

    /// The longest pause between two tries of a failed command.
    pub(crate) fn longest_pause(&self) -> Duration {
        Self::retry_pause(self.watchdog_timeout)
    }

    /// The longest pause between two tries to connect. It is at most a tenth of the lease, because a longer pause could
    /// last until a short lease ends.
    #[cfg(feature = "redis")]
    pub(crate) fn longest_reconnect_pause(&self) -> Duration {
        (self.watchdog_timeout / 10).clamp(MIN_LEASE, RECONNECT_BACKOFF.longest)
    }

    /// The longest pause between two tries of a failed command on a hold with this lease.
    pub(crate) fn retry_pause(lease: Duration) -> Duration {
        (lease / 10).clamp(MIN_LEASE, RETRY_BACKOFF.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_timeout_leaves_room_for_several_tries_in_a_lease() {
        let config = Config {
            watchdog_timeout: Duration::from_millis(600),
            ..Config::default()
        };
        let config = config.validated().unwrap();
        assert_eq!(config.response_timeout, Duration::from_millis(100));
    }

    #[test]
    fn setting_out_of_range_is_refused_with_its_name_its_value_and_its_range() {
        fn set(change: impl FnOnce(&mut Config)) -> String {
            let mut config = Config::default();
            change(&mut config);
            config.validated().unwrap_err().to_string()
        }
        let zero = Duration::ZERO;
        let year = Duration::from_secs(366 * 24 * 3600);
        let long = Duration::new(3650 * 24 * 3600, 1_000_000);
        for (text, expected) in [
            (
                set(|config| config.watchdog_timeout = long),
                "watchdog_timeout = 3650days 1ms: expected 1ms to 3650days",
            ),
            (
                set(|config| config.watchdog_timeout = Duration::from_nanos(999_999)),
                "watchdog_timeout = 999us 999ns: expected 1ms to 3650days",
            ),
            (
                set(|config| config.lease_margin = Duration::from_secs(11)),
                "lease_margin = 11s: expected at most 10s, a third of `watchdog_timeout`",
            ),
            (
                set(|config| config.default_wait = Some(year)),
                "default_wait = 366days: expected at most 365days, or `Duration::MAX` for no limit",
            ),
            (
                set(|config| config.max_hold = Some(zero)),
                "max_hold = 0s: expected 1ms to 3650days, or `Duration::MAX` for no limit",
            ),
            (
                set(|config| config.response_timeout = zero),
                "response_timeout = 0s: expected more than 0, at most 365days",
            ),
            (
                set(|config| config.waiter_timeout = Duration::MAX),
                "waiter_timeout = more than 36500days: expected more than 0, at most 365days",
            ),
            (
                set(|config| config.warn_after = zero),
                "warn_after = 0s: expected more than 0, or `Duration::MAX` for no warning",
            ),
            (
                set(|config| config.name = ClientName::new("a b".into())),
                "name = \"a b\": expected 1 to 128 visible ASCII characters without blanks",
            ),
            #[cfg(feature = "redis")]
            (
                set(|config| config.restart_grace = year),
                "restart_grace = 366days: expected at most 365days",
            ),
            #[cfg(feature = "redis")]
            (
                set(|config| {
                    config.confirmation = Some(Confirmation {
                        replicas: Replicas::Count(1),
                        timeout: zero,
                        on_disk: false,
                    })
                }),
                "replicas_timeout = 0s: expected 1ms to 365days",
            ),
            #[cfg(feature = "redis")]
            (
                set(|config| {
                    config.confirmation = Some(Confirmation {
                        replicas: Replicas::Count(0),
                        timeout: year,
                        on_disk: false,
                    })
                }),
                "replicas = 0: expected 1 or more",
            ),
        ] {
            assert_eq!(text, format!("invalid setting {expected}"));
        }
    }

    #[test]
    fn longest_duration_is_no_limit_for_waits_and_limits() {
        assert_eq!(checked_wait(Some(Duration::MAX)).unwrap(), None);
        assert_eq!(checked_max_hold(Some(Duration::MAX)).unwrap(), None);
        let config = Config {
            default_wait: Some(Duration::MAX),
            max_hold: Some(Duration::MAX),
            response_timeout: Duration::MAX,
            unavailable_after: Duration::MAX,
            #[cfg(feature = "redis")]
            fencing_token_ttl: Some(Duration::MAX),
            ..Config::default()
        };
        let config = config.validated().unwrap();
        assert_eq!(checked_wait(config.default_wait).unwrap(), None);
        assert_eq!(config.max_hold, None);
        assert_eq!(config.unavailable_after, MAX_WAIT);
        assert_eq!(
            config.response_timeout,
            WATCHDOG_TIMEOUT / RESPONSE_TIMEOUTS_PER_LEASE
        );
        #[cfg(feature = "redis")]
        assert_eq!(config.fencing_token_ttl, None);
    }
}

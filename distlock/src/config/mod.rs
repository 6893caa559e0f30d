//! The settings of a client.

#[cfg(feature = "redis")]
pub(crate) mod address_map;
mod backoff;
mod checks;
#[cfg(feature = "redis")]
mod confirmation;
mod constants;
#[cfg(feature = "redis")]
pub(crate) mod credentials;
mod duration;
#[cfg(feature = "redis")]
pub(crate) mod look_up;
mod name;
#[cfg(feature = "_tls")]
pub(crate) mod pem;
#[cfg(feature = "redis")]
mod pub_sub;
mod settings;
#[cfg(feature = "redis")]
pub(crate) mod source;
#[cfg(feature = "redis")]
pub(crate) mod tls;

#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "redis")]
use self::address_map::AddressMap;
pub(crate) use self::backoff::Backoff;
pub(crate) use self::checks::*;
use self::checks::{TIMES_OR_MAX, check_lease_with, check_timeout, checked_margin};
#[cfg(feature = "redis")]
pub(crate) use self::confirmation::Confirmation;
#[cfg(feature = "redis")]
pub use self::confirmation::Replicas;
pub(crate) use self::constants::*;
#[cfg(feature = "redis")]
use self::credentials::CredentialsSource;
#[cfg(feature = "redis")]
use self::look_up::LookUp;
pub(crate) use self::name::ClientName;
#[cfg(feature = "redis")]
pub use self::pub_sub::PubSub;
pub use self::settings::{SettingWord, Settings};
#[cfg(feature = "redis")]
use self::tls::TlsSettings;
use crate::error::Error;

/// How many acquisitions of one client may wait at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxWaiters {
    /// For one key.
    pub(crate) per_key: u32,
    /// For all keys together.
    pub(crate) total: u32,
}

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
    /// Names the class of a key. Without the feature `metrics` nobody can set it.
    pub(crate) metrics_key_class: Option<fn(&str) -> &'static str>,
    #[cfg(feature = "redis")]
    pub(crate) fencing_token_ttl: Option<Duration>,
    #[cfg(feature = "redis")]
    pub(crate) nodelay: bool,
    /// Whether servers are to tell at once that a hold may be lost.
    #[cfg(feature = "redis")]
    pub(crate) track_holds: bool,
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
    #[cfg(feature = "redis")]
    pub(crate) tls: TlsSettings,
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
            metrics_key_class: None,
            #[cfg(feature = "redis")]
            fencing_token_ttl: None,
            #[cfg(feature = "redis")]
            nodelay: false,
            #[cfg(feature = "redis")]
            track_holds: true,
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
            #[cfg(feature = "redis")]
            tls: TlsSettings::default(),
        }
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
            let expected = "more than 0, or `unlimited` (`Duration::MAX` in code) for no warning";
            return Err(Error::invalid_time("warn_after", self.warn_after, expected));
        }
        #[cfg(feature = "redis")]
        self.check_connections()?;
        // At least 1 ms, since a sixth of a short lease may be none, and not longer than a whole call is tried.
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

    /// How long a server refuses an owner whose attempt was withdrawn.
    ///
    /// An attempt whose outcome is unknown is withdrawn repeatedly while it may still arrive. For one watchdog lease the
    /// pauses between the withdrawals are shorter than this time. After that the attempt's own lease has ended.
    pub(crate) fn owners_remembered(&self) -> Duration {
        self.watchdog_timeout
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

    /// Rejects a lease that no server can keep, and one of which nothing is left without the client's margin.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        check_lease_with(self.lease_margin, lease, MIN_LEASE)
    }

    /// The same for a Redlock, of which more has to be left.
    pub(crate) fn check_quorum_lease(&self, lease: Duration) -> Result<(), Error> {
        check_lease_with(self.lease_margin, lease, MIN_QUORUM_LEASE)
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
mod tests;

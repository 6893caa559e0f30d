//! The settings of a client.
//!
//! This file has those of leases and keys. The others stand in a file for each subject.

#[cfg(feature = "redis")]
mod address_map;
#[cfg(feature = "redis")]
mod connections;
#[cfg(feature = "redis")]
mod credentials;
#[cfg(feature = "test-util")]
mod decorators;
#[cfg(feature = "test-util")]
mod test_settings;
#[cfg(feature = "redis")]
mod tls;
mod waits;

use std::time::Duration;

#[cfg(feature = "test-util")]
use self::decorators::Decorators;
use crate::config::{Config, Settings};

/// The settings of a [`Client`](crate::Client) that is to be made. Each has a default.
///
/// The values are checked when the client is made, not when they are set.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use distlock::{Client, MemoryServer};
///
/// let client = Client::builder()
///     .key_prefix("shop:")
///     .watchdog_timeout(Duration::from_secs(10))
///     .default_wait(Duration::from_secs(5))
///     .in_memory(&MemoryServer::new())?;
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings have no effect until a client is made with them"]
pub struct Builder {
    /// The settings that are no plain values, such as functions.
    pub(crate) config: Config,
    /// The settings that are plain values, as far as they were set.
    pub(crate) settings: Settings,
    #[cfg(feature = "test-util")]
    pub(crate) decorators: Decorators,
}

impl Builder {
    /// Sets all settings that `settings` has; the others stay as they are.
    ///
    /// It has the same effect as calling the method of each of these settings here. If a setting is set several times, the last
    /// call wins. All calls win over the query of the [URL](Builder::connect).
    ///
    /// # Errors
    /// Values out of range are reported when the client is made, as for the methods of the same names.
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig): there is only one of `replicas` and `replicas_timeout`.
    ///
    /// # Examples
    /// See [`Settings`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings.overlay(settings);
        self
    }

    /// Sets the lease of holds that the watchdog renews: 1 ms to 10 years, 30 s by default.
    ///
    /// It applies to all acquisitions that do not set a [lease](crate::Acquire::lease). The watchdog renews a hold each
    /// time a third of the lease has passed. After a crash, the key stays locked until the lease expires. Redisson calls
    /// this setting `lockWatchdogTimeout`.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .watchdog_timeout(Duration::from_secs(10))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[doc(alias("lock_watchdog_timeout", "ttl"))]
    pub fn watchdog_timeout(mut self, lease: Duration) -> Self {
        self.settings.watchdog_timeout = Some(lease);
        self
    }

    /// Sets how long before the end of its lease in the server a hold counts as ended: at most a third of the
    /// [`watchdog_timeout`](Builder::watchdog_timeout), zero by default, in whole milliseconds.
    ///
    /// The client drops the body this long before the lease ends in the server, and the key stays locked until then. A request
    /// that the body has already sent is therefore less likely to run at the same time as the next owner. Choose a margin as long as such a
    /// request may take. The margin applies when the lease ends because no renewal was confirmed, and to acquisitions with [a
    /// lease of their own](crate::Acquire::lease): the code under the lock has less time by the margin. A release before that
    /// end, and the end of a [`max_hold`](crate::Acquire::max_hold), free the key at once.
    ///
    /// A [Redlock](crate::RedLock) is lost when it counts as held on too few servers. The servers that are left stay locked by the
    /// margin from that moment on.
    ///
    /// The margin shortens the time in which two owners may work at once, but cannot rule it out:
    /// [`limits`](crate::guide::limits#paused-processes) says why. The price is that a hold survives only shorter pauses and
    /// outages.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made. A
    /// lease of an acquisition that is not longer than the margin is refused in the same way.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), distlock::Error> {
    /// use std::time::Duration;
    ///
    /// let server = distlock::MemoryServer::new();
    /// let client = distlock::Client::builder().lease_margin(Duration::from_secs(2)).in_memory(&server)?;
    /// let lock = client.lock("report");
    /// let guard = lock.acquire().lease(Duration::from_secs(10)).await?;
    /// guard.lost().await; // 8 seconds later
    /// assert!(lock.is_locked().await?); // for 2 seconds more
    /// # Ok(()) }
    /// ```
    pub fn lease_margin(mut self, margin: Duration) -> Self {
        self.settings.lease_margin = Some(margin);
        self
    }

    /// Sets a prefix for the names of all keys in the server; empty by default. Behind a prefix that does not begin with a brace, keys
    /// such as `q` and `{q}` do not [share data](crate::guide::from_redisson#keys-that-share-data).
    ///
    /// Errors, logs and guards show keys without the prefix. The prefix counts towards the limit of 4096 bytes for a
    /// key.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .key_prefix("shop:")
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[doc(alias = "namespace")]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.key_prefix = Some(prefix.into());
        self
    }

    /// Sets the name under which the server lists this client: 1 to 128 printable ASCII characters without spaces. The default
    /// is the name of the machine and the id of the process, such as `web-3-41207`.
    ///
    /// The server keeps it for each connection, followed by `:` and the client's [id](crate::Client::id). Owners begin with the
    /// same id, so [`Client::inspect`](crate::Client::inspect) and `CLIENT LIST` lead from an owner to the process that holds
    /// a lock. The name needs no right.
    ///
    /// # Errors
    /// A name that is empty, too long, or has other characters is reported as
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::builder()
    ///     .name("orders-7f9c")
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// let _guard = client.lock("order:42").acquire().await?;
    /// let report = client.inspect("order:42").await?;
    /// let holder = report.holders[0].client.as_ref();
    /// assert_eq!(holder.map(|client| client.name.as_str()), Some("orders-7f9c"));
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the longest time for which the watchdog renews a hold, for acquisitions that do not set one: 1 ms to 10
    /// years, unlimited by default and with [`Duration::MAX`].
    ///
    /// It also limits a hold that this client [attaches](crate::Client::attach), counted from then on. It does not limit how long a
    /// [`Leader`](crate::Leader) leads. See [`Acquire::max_hold`](crate::Acquire::max_hold).
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .max_hold(Duration::from_secs(600))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.settings.max_hold = Some(most);
        self
    }

    /// Sets how long the client waits for the answer to one command: more than 0 and at most a year, 2 s by default.
    ///
    /// A command without an answer has an unknown outcome, and the client sends it again. The client shortens the
    /// timeout to a sixth of the [watchdog's lease](Builder::watchdog_timeout) if it is longer, so that a renewal can
    /// be retried several times. It also shortens it to [`unavailable_after`](Builder::unavailable_after).
    /// [`Duration::MAX`] sets the longest timeout that these two allow.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .response_timeout(Duration::from_millis(500))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = Some(timeout);
        self
    }

    /// Gives the metrics of this client a label `key_class`, with what `class` returns for the key. There is no such label by
    /// default.
    ///
    /// Keys are never labels of metrics, because an exporter keeps a time series for each value of a label. This function
    /// should therefore return one of a few values, for example `"order"` for all keys that begin with `order:`. It gets the
    /// key without the client's prefix, and is called several times for each acquisition, so it should be fast and always
    /// return the same class for a key. If it panics, the key has no class.
    ///
    /// See the [guide](crate::guide::logs_metrics_alerts) for all metrics.
    ///
    /// # Examples
    /// ```
    /// fn class(key: &str) -> &'static str {
    ///     match key.split_once(':') {
    ///         Some(("order", _)) => "order",
    ///         Some(("stock", _)) => "stock",
    ///         _ => "other",
    ///     }
    /// }
    ///
    /// let client = distlock::Client::builder()
    ///     .metrics_key_class(class)
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metrics_key_class(mut self, class: fn(&str) -> &'static str) -> Self {
        self.config.metrics_key_class = Some(class);
        self
    }

    /// Sets how long Redis keeps the last token of a [fenced lock](crate::FencedLock) that is no longer used: 1 ms
    /// to 10 years, forever by default and with [`Duration::MAX`].
    ///
    /// Set it if there are many keys and each is used only once. Do not set it if Redisson clients use the same keys:
    /// once a token has expired, Redisson counts from 1 again, below the tokens that a store has already seen. This
    /// crate continues from the server's clock instead.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`](crate::Error::InvalidConfig) when the client is
    /// made.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let client = distlock::Client::builder()
    ///     .fencing_token_ttl(Duration::from_secs(7 * 24 * 3600))
    ///     .in_memory(&distlock::MemoryServer::new())?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    pub fn fencing_token_ttl(mut self, ttl: Duration) -> Self {
        self.settings.fencing_token_ttl = Some(ttl);
        self
    }
}

impl From<Settings> for Builder {
    fn from(settings: Settings) -> Self {
        Self::default().settings(settings)
    }
}

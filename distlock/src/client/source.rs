//! The source of the locks of an attribute or a layer: one client, or a quorum of several servers.

use std::iter;
use std::time::Duration;

use crate::acquire::{Acquire, LockSet};
use crate::client::Client;
use crate::client::quorum::Quorum;
use crate::config::{Config, WATCHDOG_TIMEOUT};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::MultiLock;
use crate::resource::kind::Kind;
use crate::resource::mode::Mode;

/// A source of locks: a [`Client`], or a [`Quorum`] of several servers.
///
/// The attribute's `client = ..` and the layer take one. Clients, quorums and references to them convert with `into()`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, LockSource, Mode};
///
/// async fn sweep(locks: impl Into<LockSource>) -> Result<(), distlock::Error> {
///     locks.into().acquire(Mode::Write, ["reports"]).run(async {}).await
/// }
///
/// sweep(Client::in_memory()).await
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockSource {
    /// The locks of one server.
    Client(Client),
    /// The locks that a majority of several servers grants.
    Quorum(Quorum),
}

impl LockSource {
    /// Acquires `keys` with locks of the kind `mode`. Await the result for a guard, or [run](Acquire::run) a future
    /// under the lock.
    ///
    /// With one key it acquires a lock of that kind, with several a [`MultiLock`] of such locks: all of them or none.
    /// The keys may be in any order.
    ///
    /// # Errors
    /// When it is awaited, the errors of [`Acquire`], and [`Error::Unsupported`] for:
    ///
    /// * several keys with [`Mode::Fenced`], because a guard has one fencing token;
    /// * several keys, fair locks or fenced locks of a [`Quorum`].
    ///
    /// # Cancel safety
    /// The same as [`Acquire`](Acquire#cancel-safety).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, LockSource, Mode};
    ///
    /// let locks = LockSource::from(Client::in_memory());
    /// let guard = locks.acquire(Mode::Reentrant, ["order:42", "stock:7"]).await?;
    /// assert_eq!(guard.keys().count(), 2);
    /// assert!(locks.acquire(Mode::Fenced, ["order:42", "stock:7"]).await.unwrap_err().is_permanent());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire<K: Into<String>>(
        &self,
        mode: Mode,
        keys: impl IntoIterator<Item = K>,
    ) -> Acquire<Guard> {
        let mut keys = keys.into_iter().map(Into::into);
        // A single key needs no list.
        let first = keys.next();
        let second = keys.next();
        match (first, second) {
            (Some(one), None) => self.acquire_one(mode, one),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(keys);
                self.acquire_all(mode, all.collect())
            }
        }
    }

    /// The client's [`default_wait`](crate::Builder::default_wait), or that of the first client of a quorum. `None` if no default
    /// was set; [`Duration::MAX`] if a wait without limit was set.
    ///
    /// Middleware with another default uses that default only if this is `None`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use distlock::{Client, LockSource, MemoryServer};
    ///
    /// assert_eq!(LockSource::from(Client::in_memory()).default_wait(), None);
    /// let (server, wait) = (MemoryServer::new(), Duration::from_secs(5));
    /// let client = Client::builder().default_wait(wait).in_memory(&server)?;
    /// assert_eq!(LockSource::from(client).default_wait(), Some(wait));
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn default_wait(&self) -> Option<Duration> {
        self.of_client(|config| config.default_wait)
    }

    /// The client's [`max_waiters`](crate::Builder::max_waiters), or that of the first client of a quorum. `None` if nobody has
    /// set it.
    ///
    /// # Examples
    /// ```
    /// let locks = distlock::LockSource::from(distlock::Client::in_memory());
    /// assert_eq!(locks.max_waiters(), None);
    /// ```
    pub fn max_waiters(&self) -> Option<u32> {
        self.of_client(|config| config.max_waiters)
    }

    /// The client's [`watchdog_timeout`](crate::Builder::watchdog_timeout), or that of the first client of a quorum: 30 s
    /// if nobody has set it.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let locks = distlock::LockSource::from(distlock::Client::in_memory());
    /// assert_eq!(locks.watchdog_timeout(), Duration::from_secs(30));
    /// ```
    pub fn watchdog_timeout(&self) -> Duration {
        let set = self.of_client(|config| Some(config.watchdog_timeout));
        set.unwrap_or(WATCHDOG_TIMEOUT)
    }

    /// The id of the client, or of each client of a quorum.
    pub(super) fn client_ids(&self) -> String {
        match self {
            Self::Client(client) => client.id().to_string(),
            Self::Quorum(quorum) => quorum.client_ids(),
        }
    }

    /// A setting of the client, or of the first client of a quorum.
    fn of_client<T>(&self, setting: impl FnOnce(&Config) -> Option<T>) -> Option<T> {
        let client = match self {
            Self::Client(client) => client,
            Self::Quorum(quorum) => quorum.first_client()?,
        };
        client.with_config(setting)
    }

    #[track_caller]
    fn acquire_one(&self, mode: Mode, key: String) -> Acquire<Guard> {
        match self {
            Self::Client(client) => Acquire::new(LockSet::One(client.handle(mode.kind(), key))),
            Self::Quorum(quorum) => match mode.kind() {
                Kind::Fair | Kind::NonReentrantFair => refused(
                    key,
                    "the servers of a quorum have no common order of arrival, so it has no fair locks",
                ),
                Kind::Fenced => {
                    refused(key, "the servers of a quorum have no common fencing token")
                }
                kind => quorum.acquire(kind, &key),
            },
        }
    }

    #[track_caller]
    fn acquire_all(&self, mode: Mode, keys: Vec<String>) -> Acquire<Guard> {
        let first = keys.first().cloned().unwrap_or_default();
        match self {
            _ if mode == Mode::Fenced && !keys.is_empty() => refused(
                first,
                "a fenced lock has a single key, because it has a single fencing token",
            ),
            Self::Quorum(_) if !keys.is_empty() => {
                refused(first, "a lock of a quorum has a single key")
            }
            Self::Client(client) => {
                let handles = keys.into_iter().map(|key| client.handle(mode.kind(), key));
                MultiLock::new(handles).acquire()
            }
            // Without keys. The acquisition fails and says so.
            Self::Quorum(_) => MultiLock::new(iter::empty()).acquire(),
        }
    }
}

/// An acquisition that fails with this reason when it is awaited.
#[track_caller]
fn refused(key: String, reason: &'static str) -> Acquire<Guard> {
    Acquire::new(LockSet::Refused(Box::new(Error::Unsupported {
        key,
        reason,
    })))
}

impl AsRef<Self> for LockSource {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<Client> for LockSource {
    fn from(client: Client) -> Self {
        Self::Client(client)
    }
}

impl From<&Client> for LockSource {
    fn from(client: &Client) -> Self {
        Self::Client(client.clone())
    }
}

impl From<Quorum> for LockSource {
    fn from(quorum: Quorum) -> Self {
        Self::Quorum(quorum)
    }
}

impl From<&Quorum> for LockSource {
    fn from(quorum: &Quorum) -> Self {
        Self::Quorum(quorum.clone())
    }
}

impl From<&Self> for LockSource {
    fn from(locks: &Self) -> Self {
        locks.clone()
    }
}

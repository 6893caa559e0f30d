//! Where an attribute or a layer has its locks from: one client, or several servers of which a majority decides.

use std::iter;

use crate::acquire::{Acquire, LockSet};
use crate::client::Client;
use crate::client::quorum::Quorum;
use crate::error::Error;
use crate::guard::Guard;
use crate::kind::Kind;
use crate::mode::Mode;
use crate::primitives::MultiLock;

/// Where locks come from, for code that is given either: a [`Client`], or a [`Quorum`] over several servers.
///
/// What the attribute's `client = ..` and the layer take. Made from either by `into()`, also from a reference.
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
    /// Those of one server.
    Client(Client),
    /// Those that a majority of several servers grants.
    Quorum(Quorum),
}

impl LockSource {
    /// Acquires `keys` as `mode` says; await what it gives, or run something under it.
    ///
    /// Of one key the lock of that kind, of several a [`MultiLock`] of such locks: all or nothing, in any order.
    ///
    /// # Errors
    /// When awaited, those of [`Acquire`], and [`Error::Unsupported`] for what cannot be: several keys with
    /// [`Mode::Fenced`], as there is one token; and of a [`Quorum`] several keys, fair locks and fenced ones.
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
    pub fn acquire<K: Into<String>>(
        &self,
        mode: Mode,
        keys: impl IntoIterator<Item = K>,
    ) -> Acquire<Guard> {
        let mut keys = keys.into_iter().map(Into::into);
        let (first, second) = (keys.next(), keys.next());
        match (first, second) {
            (Some(one), None) => self.acquire_one(mode, one),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(keys);
                self.acquire_all(mode, all.collect())
            }
        }
    }

    fn acquire_one(&self, mode: Mode, key: String) -> Acquire<Guard> {
        match self {
            Self::Client(client) => Acquire::new(LockSet::One(client.handle(mode.kind(), key))),
            Self::Quorum(red_lock) => match mode.kind() {
                Kind::Fair | Kind::NonReentrantFair => refused(
                    key,
                    "a Redlock's servers have no order of arrival in common",
                ),
                Kind::Fenced => refused(key, "a Redlock's servers have no token in common"),
                kind => red_lock.acquire(kind, &key),
            },
        }
    }

    fn acquire_all(&self, mode: Mode, keys: Vec<String>) -> Acquire<Guard> {
        let first = keys.first().cloned().unwrap_or_default();
        match self {
            _ if mode == Mode::Fenced && !keys.is_empty() => {
                refused(first, "a fenced lock has one key, for it has one token")
            }
            Self::Quorum(_) if !keys.is_empty() => refused(first, "a Redlock has one key"),
            Self::Client(client) => {
                let handles = keys.into_iter().map(|key| client.handle(mode.kind(), key));
                MultiLock::new(handles).acquire()
            }
            Self::Quorum(_) => MultiLock::new(iter::empty()).acquire(),
        }
    }
}

/// An acquisition that tells, when awaited, why it cannot be.
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
    fn from(red_lock: Quorum) -> Self {
        Self::Quorum(red_lock)
    }
}

impl From<&Quorum> for LockSource {
    fn from(red_lock: &Quorum) -> Self {
        Self::Quorum(red_lock.clone())
    }
}

impl From<&Self> for LockSource {
    fn from(locks: &Self) -> Self {
        locks.clone()
    }
}

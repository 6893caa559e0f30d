//! Clients of several independent servers, and the locks that a majority of them grants.

use std::collections::HashSet;
use std::sync::Arc;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::client::Client;
use crate::primitives::RedLock;
use crate::resource::kind::Kind;

/// Clients of several independent servers, for locks that are granted by a majority of them.
///
/// Use it if one server and its replicas are not reliable enough. All servers are asked concurrently. If a minority of
/// them is down, hangs or is slow, locking continues at the pace of the majority. Three or five servers are usual; an
/// even number tolerates no more failures than one server less.
///
/// The servers must not lose data: if one restarts without its data within a lease, a second owner may be granted a
/// majority. [`Builder::restart_grace`](crate::Builder::restart_grace) prevents that. If a late write must be prevented in all cases, use a [`FencedLock`](crate::FencedLock) and a store that
/// compares its tokens; a majority cannot prevent it.
///
/// # Servers that are away at the start
/// Make the clients by [`Client::connect_lazy`](crate::Client::connect_lazy), which does not wait for its server. The program can
/// then start and lock while a minority of the servers is down. It uses these servers as soon as they are up.
/// [`Client::connect`](crate::Client::connect) would fail for each server that is down.
///
/// ```no_run
/// # #[cfg(feature = "redis")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, Error, Quorum};
///
/// let servers = ["redis://locks-1", "redis://locks-2", "redis://locks-3"];
/// let clients: Vec<_> = servers.into_iter().map(Client::connect_lazy).collect::<Result<_, Error>>()?;
/// let guard = Quorum::new(clients).lock("order:42").acquire().await?;
/// # Ok(()) }
/// # #[cfg(not(feature = "redis"))] fn main() {}
/// ```
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, Quorum};
///
/// let red_lock = Quorum::new([Client::in_memory(), Client::in_memory(), Client::in_memory()]);
/// let sold = red_lock.lock("order:42").acquire().run(async { "sold" }).await?;
/// assert_eq!(sold, "sold");
/// # Ok(()) }
/// ```
#[doc(alias = "Redlock")]
#[derive(Clone, Debug)]
pub struct Quorum {
    clients: Arc<[Client]>,
}

impl Quorum {
    /// Creates a quorum of the servers of these clients.
    ///
    /// Each client must be connected to a different server. An acquisition that finds two clients of one server fails with
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig), which names both addresses. The quorum finds this out when the
    /// server refuses one of the two because it has granted the key to the other. Clones of a client count once.
    ///
    /// # Examples
    /// See [`Quorum`].
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Self {
        let mut seen = HashSet::new();
        let clients = clients.into_iter();
        Self {
            // A client that is given twice would count as two servers.
            clients: clients.filter(|client| seen.insert(client.id())).collect(),
        }
    }

    /// Returns the [lock](RedLock) on `key` that a majority of the servers grants, without any I/O.
    ///
    /// Operations on the lock fail with [`Error::InvalidKey`](crate::Error::InvalidKey) if the key is empty or too long.
    /// Acquiring it fails with [`Error::NoKeys`](crate::Error::NoKeys) if the quorum has no servers.
    ///
    /// # Examples
    /// See [`Quorum`].
    pub fn lock(&self, key: impl Into<String>) -> RedLock {
        self.lock_of(Kind::Reentrant, key.into())
    }

    /// Returns the lock of [`lock`](Quorum::lock) as one that cannot be entered again inside its own scope: that fails at once with
    /// [`Error::Deadlock`](crate::Error::Deadlock).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Quorum};
    ///
    /// let lock = Quorum::new([Client::in_memory()]).non_reentrant_lock("order:42");
    /// let again = lock.acquire().run(async { lock.try_acquire().await }).await?;
    /// assert!(again.unwrap_err().is_permanent());
    /// # Ok(()) }
    /// ```
    pub fn non_reentrant_lock(&self, key: impl Into<String>) -> RedLock {
        self.lock_of(Kind::NonReentrant, key.into())
    }

    /// Returns the read side of a read/write lock on `key` that a majority of the servers grants, without any I/O. Any number of owners
    /// can hold it, if no owner holds the [`write_lock`](Quorum::write_lock).
    ///
    /// Inside of the write lock of the same key, reading fails at once with [`Error::Deadlock`](crate::Error::Deadlock).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// use distlock::{Client, Quorum};
    ///
    /// let servers = Quorum::new([Client::in_memory(), Client::in_memory(), Client::in_memory()]);
    /// let (read, write) = (servers.read_lock("report:42"), servers.write_lock("report:42"));
    /// let reads = (read.acquire().await?, read.acquire().await?);
    /// assert!(write.try_acquire().await?.is_none());
    /// drop(reads);
    /// write.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn read_lock(&self, key: impl Into<String>) -> RedLock {
        self.lock_of(Kind::Read, key.into())
    }

    /// Returns the write side of a read/write lock on `key` that a majority of the servers grants, without any I/O. One owner holds it
    /// alone, while no owner holds the [`read_lock`](Quorum::read_lock).
    ///
    /// # Examples
    /// See [`Quorum::read_lock`].
    pub fn write_lock(&self, key: impl Into<String>) -> RedLock {
        self.lock_of(Kind::Write, key.into())
    }

    /// Acquires a lock of this kind on a majority of the servers.
    #[track_caller]
    pub(crate) fn acquire(&self, kind: Kind, key: &str) -> Acquire {
        Acquire::new(LockSet::Quorum(self.handles(kind, key)))
    }

    pub(super) fn client_ids(&self) -> String {
        let ids = self.clients.iter().map(|client| client.id().to_string());
        ids.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn first_client(&self) -> Option<&Client> {
        self.clients.first()
    }

    fn lock_of(&self, kind: Kind, key: String) -> RedLock {
        RedLock::new(&key, self.handles(kind, &key))
    }

    fn handles(&self, kind: Kind, key: &str) -> Arc<[Handle]> {
        let clients = self.clients.iter();
        clients.map(|client| client.handle(kind, key)).collect()
    }
}

impl AsRef<Self> for Quorum {
    fn as_ref(&self) -> &Self {
        self
    }
}

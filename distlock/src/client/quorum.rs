//! Clients of several independent servers, and the locks that a majority of them grants.

use std::collections::HashSet;
use std::sync::Arc;

use crate::acquire::handle::Handle;
use crate::acquire::{Acquire, LockSet};
use crate::client::Client;
use crate::kind::Kind;
use crate::primitives::RedLock;

/// Clients of several independent servers, whose locks are held by a majority.
///
/// For those who cannot rely on one server and its replicas. All servers are asked at once; with a minority of them dead,
/// hung or slow everything goes on, at the pace of the majority. Three or five servers are usual; an even number is no
/// better than one less.
///
/// It needs servers that do not forget: one that restarts without its data within a lease may let a second owner have a
/// majority. Where a late write must be stopped for certain, a [`FencedLock`](crate::FencedLock) and a store that
/// compares its token do that, and this does not.
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
#[derive(Clone, Debug)]
pub struct Quorum {
    clients: Arc<[Client]>,
}

impl Quorum {
    /// The servers of these clients, of which each needs one to itself. A client that comes again counts once. Two
    /// clients of one server cannot be told from others: they are in each other's way, and with them a majority is never
    /// had, or is none.
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Self {
        let mut seen = HashSet::new();
        let clients = clients.into_iter();
        Self {
            clients: clients.filter(|client| seen.insert(client.id())).collect(),
        }
    }

    /// A lock on `key`, held by whoever has it on a majority of the servers.
    ///
    /// A key that is empty or too long, and no server at all, show when the lock is used.
    /// # Examples
    /// See [`Quorum`].
    pub fn lock(&self, key: impl Into<String>) -> RedLock {
        RedLock::new(self.handles(Kind::Reentrant, &key.into()))
    }

    /// A key of this kind, on a majority of the servers.
    pub(crate) fn acquire(&self, kind: Kind, key: &str) -> Acquire {
        Acquire::new(LockSet::Quorum(self.handles(kind, key)))
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

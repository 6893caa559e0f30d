//! A server in this process, which several clients may share.

use std::fmt;
use std::sync::Arc;

use super::store::Store;
use crate::clock::Clock;

/// A lock server inside this process, to be shared by several clients.
///
/// [`Client::in_memory`](crate::Client::in_memory) creates a server for that client alone. Use a `MemoryServer` when a
/// test simulates several replicas of a program: clients of one server exclude each other like processes that share one
/// Redis server. The server lives as long as any handle to it or any client of it.
///
/// The server keeps nothing of a lock that nobody holds or waits for. It also forgets the last token of a
/// [fenced lock](crate::FencedLock) when the lock is free. Later tokens are still higher, because each token is at least
/// the server's time, and that time never goes back, even if the machine's clock is set back.
///
/// With the feature `testing` a test can take the server down, have it fail, have it forget what it knows, and wait until
/// somebody holds a key or waits for it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use distlock::{Client, MemoryServer};
///
/// let server = MemoryServer::new();
/// let (one, two) = (Client::builder().in_memory(&server)?, Client::builder().in_memory(&server)?);
/// let _guard = one.lock("order:42").acquire().await?;
/// assert!(two.lock("order:42").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryServer {
    pub(super) store: Arc<Store>,
}

impl MemoryServer {
    /// Creates a server on which nothing is locked.
    pub fn new() -> Self {
        Self {
            store: Arc::new(Store::new()),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.store.clock.clone()
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.store.state.lock().values.len();
        f.debug_struct("MemoryServer")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

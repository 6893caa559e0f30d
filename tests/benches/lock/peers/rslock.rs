//! The crate `rslock`.

use rslock::LockManager;

use super::{LEASE, RETRY};

/// A lock manager for one server.
#[derive(Clone)]
pub(crate) struct Rslock {
    manager: LockManager,
}

impl Rslock {
    pub(crate) fn new(url: &str) -> Self {
        let mut manager = LockManager::new(vec![url]);
        // It waits a random time below this one, so twice as long is the same on average.
        manager.set_retry(u32::MAX, 2 * RETRY);
        Self { manager }
    }

    /// Takes the key, runs `inside` and frees the key.
    pub(crate) async fn enter(&self, key: &str, inside: impl Future<Output = ()>) {
        let guard = self.manager.acquire(key, LEASE).await.unwrap();
        inside.await;
        guard.release().await;
    }
}

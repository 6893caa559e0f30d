//! The numbers of connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::sync::foreign;

/// Numbers the connections of one client, to all of its servers, and the changes of the nodes that have its keys, so that
/// no two have the same number.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// The last number that was given to a connection, established or not.
    last: AtomicU64,
    /// How often a connection was re-established.
    changes: watch::Sender<u64>,
}

impl Epochs {
    /// A number that is higher than all before it.
    pub(crate) fn next(&self) -> u64 {
        // Relaxed: the numbers only have to differ and to grow.
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A connection was re-established, or keys have another server.
    pub(crate) fn changed(&self) {
        foreign::send_modify(&self.changes, |changes| *changes += 1);
    }

    /// How often a connection was re-established.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Completes with the new number of changes when that is not `changes` any more.
    pub(crate) async fn changes_after(&self, changes: u64) -> u64 {
        let mut current = self.changes.subscribe();
        let other = current.wait_for(|current| *current != changes).await;
        // The sender is a field of `self`, so it is there.
        other.map_or(changes, |current| *current)
    }
}

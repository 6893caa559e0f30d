//! The numbers by which a client tells its owners apart.

use uuid::Uuid;

use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The owners of one client's acquisitions: each was never used before.
#[derive(Debug)]
pub(crate) struct Owners {
    client: Uuid,
    next: AtomicU64,
}

impl Owners {
    pub(crate) fn new(client: Uuid) -> Self {
        Self {
            client,
            // 0 is nobody: what needs no owner, such as a subscription to the channel of a key, has that number.
            next: AtomicU64::new(1),
        }
    }

    /// An owner that was never used before.
    pub(crate) fn next(&self) -> Owner {
        // A rule of tests/model: owner_is_not_used_again.
        // Relaxed: the number only has to be different each time.
        Owner::new(self.client, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

//! The time after a client's last handle was dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Tick;
use crate::resource::identity::Identity;
use crate::sync::OnceLock;

/// Since when no handle of the client is left, or the client has had another identity. The watchdog ends then. The releaser ends
/// when no release is pending, or after one lease of the watchdog.
#[derive(Debug)]
pub(super) struct Retirement {
    since: OnceLock<Tick>,
    identity: Arc<Identity>,
    /// The lease of the watchdog.
    lease: Duration,
}

impl Retirement {
    pub(super) fn new(identity: &Arc<Identity>, lease: Duration) -> Self {
        Self {
            since: OnceLock::new(),
            identity: Arc::clone(identity),
            lease,
        }
    }

    pub(super) fn begin(&self, now: Tick) {
        // A client that has taken another identity was retired then.
        let _first = self.since.set(now);
    }

    pub(super) fn has_begun(&self) -> bool {
        // The copy of a process sends nothing, so the tasks that it has end as well.
        self.since.get().is_some() || self.identity.is_known_copy()
    }

    /// When a retired client abandons its pending releases: by then the leases that the watchdog kept have ended.
    pub(super) fn last_moment(&self) -> Tick {
        let since = self.since.get();
        since.map_or(Tick::NEVER, |since| since.after(self.lease))
    }
}

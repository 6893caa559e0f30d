//! A release that the releaser's task is sending.

use std::sync::Arc;

use scopeguard::defer;

use super::pending::{PendingRelease, ReleaseOutcome};
use crate::session::Session;

/// A release that the task is sending. Dropping it puts the release back into the list.
pub(super) struct InFlight {
    pub(super) session: Arc<Session>,
    /// `None` once nothing of it is left in the server.
    pub(super) pending: Option<PendingRelease>,
}

impl InFlight {
    /// The number of the server that it goes to.
    pub(super) fn server(&self, session: &Session) -> u32 {
        let key = self.pending.as_ref().map(|one| &one.target.resource.key);
        key.map_or(0, |key| session.backend.home(key).server)
    }

    /// Returns whether the release was neither answered nor given up before.
    pub(super) fn settle(&mut self, settled: ReleaseOutcome) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        let is_first = !pending.answered;
        let releaser = &self.session.releaser;
        // Also if a waker that the end of the hold wakes panics.
        defer! {
            if is_first {
                releaser.one_answered();
            }
        }
        pending.settle(&self.session, settled)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.session.releaser.put_back(pending);
        }
    }
}

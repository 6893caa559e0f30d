//! The end of a hold that has no guard, and the holds whose last guard was dropped.
//!
//! The release of a dropped guard is not sent at once: the hold waits for the releaser's task. Until that task begins the
//! release, the next acquisition of the same client may take the hold back, as if it had been handed over. The flag that
//! decides between the two is in the hold, under its mutex, so only one of them gets the hold.

use std::sync::Arc;

use scopeguard::defer;

use super::{PendingRelease, ReleaseTicket};
use crate::clock::Tick;
use crate::error::Loss;
use crate::hold::Hold;
use crate::session::Session;

impl Session {
    /// Ends the renewals of a hold that has no guard. Returns the release that has to be sent to the server.
    ///
    /// # Errors
    /// The loss, if the hold was lost before.
    pub(crate) fn stop(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        now: Tick,
    ) -> Result<ReleaseTicket, Loss> {
        if let Err(loss) = hold.stop_renewals(now) {
            defer! { self.freed(hold, None); }
            self.lose(hold, loss);
            return Err(loss);
        }
        // Made first: whatever happens from here on, its drop has the hold released.
        let ticket = self.ticket_for(PendingRelease::of_hold(hold).that_frees(hold));
        self.unwatch(hold);
        Ok(ticket)
    }

    /// Takes note that a hold is over, and that so many other clients heard of it, if the server has told.
    pub(crate) fn freed(&self, hold: &Hold, others: Option<u32>) {
        match self.inspection.callbacks() {
            Some(registry) => registry.freed(hold, others),
            // A release that is never answered does not keep a client alive whose handles are all dropped.
            None => hold.announce_over(),
        }
    }

    /// Has the releaser's task release a hold that [waits for its release](Hold::wait_for_release), unless it was taken back
    /// by then.
    pub(crate) fn release_dropped(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.releaser.enqueue_dropped(hold);
        self.start_tasks();
    }

    /// The release of a hold whose last guard was dropped; `None` if it was taken back, or lost.
    pub(super) fn begin_release(self: &Arc<Self>, hold: &Arc<Hold>) -> Option<ReleaseTicket> {
        if !hold.begin_release() {
            return None;
        }
        self.stop(hold, self.now()).ok()
    }
}

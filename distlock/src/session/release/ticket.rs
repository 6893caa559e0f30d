//! A release that its holder sends, and what becomes of it if the holder gives up.

use std::sync::Arc;

use scopeguard::guard;

use super::pending::{PendingRelease, ReleaseOutcome};
use crate::clock::Tick;
use crate::session::Session;

/// A hold that is being ended by the code that had it. While it exists, the client is not done with its holds: between the
/// moment when the hold leaves the watchdog and the answer to its release it is in no other list.
#[derive(Debug)]
pub(crate) struct Ending<'a>(&'a Session);

impl<'a> Ending<'a> {
    /// Made before the hold leaves the watchdog.
    pub(crate) fn new(session: &'a Session) -> Self {
        session.releaser.one_more_ends();
        Self(session)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.0.releaser.one_less_ends() {
            self.0.tell_close();
        }
    }
}

/// A release that its holder sends. If the ticket is dropped unsettled the release goes to the releaser.
#[derive(Debug)]
pub(crate) struct ReleaseTicket {
    session: Arc<Session>,
    pending: Option<PendingRelease>,
}

impl ReleaseTicket {
    pub(crate) fn new(session: &Arc<Session>, pending: PendingRelease) -> Self {
        // Taken over by the drop of the ticket, which needs no reference of its own to the session.
        std::mem::forget(Ending::new(session));
        Self {
            session: Arc::clone(session),
            pending: Some(pending),
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The release; `None` if it was settled.
    pub(crate) fn pending(&mut self) -> Option<&mut PendingRelease> {
        self.pending.as_mut()
    }

    /// Takes the release out, which the caller adds to the list at once.
    pub(crate) fn into_pending(mut self) -> Option<PendingRelease> {
        let pending = self.pending.take();
        // By name: it may wake a close, and what a function returns is not dropped if its end panics.
        drop(self);
        pending
    }

    /// Ends the owner and leaves its permits taken.
    pub(crate) fn without_permits(mut self) -> Self {
        self.pending = self.pending.take().map(PendingRelease::without_permits);
        self
    }

    /// Sends nothing: the lease ends the owner.
    pub(crate) fn abandon(mut self) {
        if let Some(mut pending) = self.pending.take() {
            let _was_not_counted = pending.settle(&self.session, ReleaseOutcome::GivenUp);
        }
    }

    /// The key stays taken until then.
    pub(crate) fn taken_until(&self) -> Tick {
        self.pending
            .as_ref()
            .map(PendingRelease::taken_until)
            .unwrap_or_default()
    }

    /// Records the connection over which the release was sent, while it is not answered; `None` if that try failed.
    pub(crate) fn note_sent(&self, over: Option<u64>) {
        if let Some(pending) = &self.pending {
            pending.note_sent(over);
        }
    }

    /// Records the loss of a hold that the server does not have any more.
    pub(crate) fn found_lost(&self, session: &Session) {
        if let Some(pending) = &self.pending {
            pending.found_lost(session);
        }
    }

    /// Records that the release was answered, and that it was sent over connection `epoch` or a later one. If an attempt
    /// may be carried out late, the releaser repeats it.
    pub(crate) fn settle(mut self, settled: ReleaseOutcome, epoch: u64) {
        if let Some(pending) = self.pending.take() {
            // Also if a waker that the end of the hold wakes panics.
            let mut pending = guard(pending, |pending| {
                let current = self.session.backend.epoch(&pending.target().resource.key);
                if pending.may_come_late(current) {
                    self.session.release_later(pending);
                } else {
                    self.session.remember(pending, epoch);
                }
            });
            let _was_not_counted = pending.settle(&self.session, settled);
        }
    }
}

impl Drop for ReleaseTicket {
    fn drop(&mut self) {
        // Dropped last: by then the release is in the list.
        let _ending = Ending(&self.session);
        if let Some(pending) = self.pending.take() {
            self.session.release_later(pending);
        }
    }
}

//! How many holds are being ended by the code that had them. A close of the client waits for these ends.

use crate::session::Session;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The number of [endings](Ending).
#[derive(Debug, Default)]
pub(crate) struct Endings(AtomicUsize);

impl Endings {
    pub(crate) fn number(&self) -> usize {
        // A write that changes nothing: an `Ending` that goes after it sees what was written before it, such as that the
        // client is closed.
        self.0.fetch_add(0, Ordering::AcqRel)
    }

    /// Counts one more. An [`Ending`] counts it out.
    pub(super) fn begin(&self) {
        // Relaxed: the hold leaves the watchdog under a mutex after this, and is found gone under the same mutex.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether it was the last one.
    fn end(&self) -> bool {
        // Release: a reader of 0 in `number` also sees that the release is in the list. Acquire: pairs with `number`.
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A hold that is being ended by the code that had it: from before it leaves the watchdog until its release is in the list, or is
/// not needed. While it exists, the client is not done with its holds: between the
/// moment when the hold leaves the watchdog and the answer to its release it is in no other list.
#[derive(Debug)]
pub(crate) struct Ending<'a>(&'a Session);

impl<'a> Ending<'a> {
    /// Made before the hold leaves the watchdog.
    pub(crate) fn new(session: &'a Session) -> Self {
        session.releaser.endings.begin();
        Self(session)
    }

    /// One that [has begun](Endings::begin).
    pub(super) fn begun(session: &'a Session) -> Self {
        Self(session)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.0.releaser.endings.end() {
            self.0.tell_close();
        }
    }
}

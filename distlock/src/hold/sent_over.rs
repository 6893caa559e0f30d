//! The connections over which the commands of a hold were sent.
//!
//! A hold keeps the lower half of their epochs. A client counts its connections, and does not make 2^32 of them.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Epoch of the last connection on which the server confirmed a hold.
#[derive(Debug)]
pub(crate) struct AskedOver(AtomicU32);

impl AskedOver {
    pub(super) fn new(epoch: u64) -> Self {
        Self(AtomicU32::new(epoch as u32))
    }

    /// Whether the server was not yet asked for the hold over connection `epoch`. Records that it is asked now.
    pub(crate) fn is_new(&self, epoch: u64) -> bool {
        let epoch = epoch as u32;
        // Relaxed: the watchdog and the grant that is being watched may both ask, which does no harm. Read first: nearly always it
        // was asked over this connection, and nothing is written.
        self.0.load(Ordering::Relaxed) != epoch && self.0.swap(epoch, Ordering::Relaxed) != epoch
    }
}

/// The connection over which the release of a hold was sent, while that is not answered.
#[derive(Debug)]
pub(crate) struct ReleaseSentOver(AtomicU32);

/// No connection has this number.
const NOT_SENT: u32 = u32::MAX;

impl Default for ReleaseSentOver {
    fn default() -> Self {
        Self(AtomicU32::new(NOT_SENT))
    }
}

impl ReleaseSentOver {
    /// Records the connection; `None` if the release has failed.
    pub(super) fn note(&self, epoch: Option<u64>) {
        // Release: pairs with the load in `is_present`. What is sent after that load is sent after the release.
        let epoch = epoch.map_or(NOT_SENT, |epoch| epoch as u32);
        self.0.store(epoch, Ordering::Release);
    }

    /// Whether the release was sent over the present connection, and is not answered yet. What is sent now is executed after the
    /// release.
    pub(crate) fn is_present(&self, current: impl FnOnce() -> u64) -> bool {
        // Acquire: pairs with the store in `note`. What follows is sent after the release.
        let sent_over = self.0.load(Ordering::Acquire);
        // The connection is read last: one that is replaced between the two reads is found to be another one.
        sent_over != NOT_SENT && sent_over == current() as u32
    }
}

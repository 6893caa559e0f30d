//! What the waiters of channels learn.

use smallvec::SmallVec;

use crate::backend::watched;
use crate::sync::foreign;

/// Signals to change once the mutex around the channels is released: each change wakes waiters. The flag is the new
/// state of the subscription; a message leaves it as it is.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Notifications {
    pub(super) changes: SmallVec<[(watched::Sender, Option<bool>); 1]>,
    /// The signals of channels that were removed. Dropping one wakes those that still watch it.
    pub(super) ended: Vec<watched::Sender>,
}

impl Notifications {
    /// Wakes the waiters.
    pub(super) fn send(self) {
        foreign::each(self.changes, |(signal, active)| {
            signal.send_modify(|signal| {
                signal.active = active.unwrap_or(signal.active);
                signal.version += 1;
                signal.messages += u64::from(active.is_none());
            });
        });
    }
}

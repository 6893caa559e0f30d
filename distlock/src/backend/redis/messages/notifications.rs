//! What the waiters of channels learn.

use smallvec::SmallVec;

use crate::backend::watched;
use crate::sync::foreign;

/// Signals to change once the mutex around the channels is released: each change wakes waiters. The flag is the new
/// state of the subscription; a message leaves it as it is.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Notifications(SmallVec<[(watched::Sender, Option<bool>); 1]>);

impl Notifications {
    pub(super) fn add(&mut self, signal: &watched::Sender, active: Option<bool>) {
        self.0.push((signal.clone(), active));
    }

    /// Wakes the waiters.
    pub(super) fn send(self) {
        foreign::each(self.0, |(signal, active)| {
            signal.send_modify(|signal| {
                signal.active = active.unwrap_or(signal.active);
                signal.version += 1;
                signal.messages += u64::from(active.is_none());
            });
        });
    }
}

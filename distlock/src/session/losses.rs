//! The last holds that one client has lost, for snapshots.

use std::collections::VecDeque;
use std::panic::Location;

use crate::clock::Tick;
use crate::config::LOSSES_SHOWN;
use crate::error::Loss;
use crate::hold::Hold;
use crate::resource::key::Resource;
use crate::resource::owner::Owner;
use crate::sync::Mutex;

/// A hold that was lost.
#[derive(Clone, Debug)]
pub(crate) struct LostHold {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) loss: Loss,
    pub(crate) at: Tick,
    /// Where in the user's code the guard that had it was acquired.
    pub(crate) call_site: &'static Location<'static>,
}

/// The last [`LOSSES_SHOWN`] losses, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<VecDeque<LostHold>>);

impl Losses {
    pub(super) fn note(&self, hold: &Hold, loss: Loss, at: Tick) {
        let lost = LostHold {
            resource: hold.resource.clone(),
            owner: hold.owner(),
            loss,
            at,
            call_site: hold.latest_guard().call_site,
        };
        let mut losses = self.0.lock();
        losses.truncate(LOSSES_SHOWN - 1);
        losses.push_front(lost);
    }

    /// Adds those of a former identity of the client, as older ones.
    pub(crate) fn take(&self, former: &Self) {
        // Copied first, so that the two mutexes are not locked together.
        let former = former.all();
        let mut losses = self.0.lock();
        losses.extend(former);
        losses.truncate(LOSSES_SHOWN);
    }

    pub(crate) fn all(&self) -> Vec<LostHold> {
        self.0.lock().iter().cloned().collect()
    }
}

//! The release of an owner that has no guard.

use std::sync::Arc;

use smallvec::smallvec;

use super::pending::PendingRelease;
use super::send::send;
use crate::backend::{Fault, Released, Target, cause};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::session::Session;

impl Session {
    /// Ends an owner that has no guard in this client, nor in any other. It is sent again for as long as the release of a guard is.
    ///
    /// # Errors
    /// [`Error::Lost`] if the owner holds nothing. [`Error::Unavailable`] also if it holds nothing after a try that was not answered.
    pub(crate) async fn release_detached(
        self: &Arc<Self>,
        target: Target,
        may_come_late: bool,
    ) -> Result<(), Error> {
        let key = target.resource.key.clone();
        let since = self.now();
        let targets = |_| smallvec![target.clone()];
        let sent = send(self, targets, |_| {}, since, Tick::NEVER).await;
        let answer = sent.map_err(|(fault, after)| fault.into_error(&key, after))?;
        self.tracking.wrote(&target.resource);
        if may_come_late {
            self.keep_ended(target);
        }
        match answer.released.first() {
            // Unlike the hold of a guard, anybody may have attached or released this one meanwhile.
            Some(Released::NotOurs) if answer.doubtful => {
                let unknown = Fault::Unknown(cause(GONE_AFTER_A_TRY));
                Err(unknown.into_error(&key, self.now().since(since)))
            }
            Some(Released::NotOurs) => Err(Error::lost(key.text(), Loss::Gone)),
            _ => Ok(()),
        }
    }

    /// Ends an owner again and again while an attempt of it may be carried out, which was sent by whatever client. It holds nothing
    /// now.
    pub(crate) fn keep_ended(self: &Arc<Self>, owner: Target) {
        let until = self.now().after(self.config.watchdog_timeout);
        self.release_later(PendingRelease::of_former(owner, until));
    }
}

const GONE_AFTER_A_TRY: &str = "the first release was not answered, and the next one has not found the hold: either the first one has \
                                ended it, or somebody else has attached or released it";

//! A guard's share of one hold, and how it ends: confirmed, or in the background when it is dropped.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::OwnedSemaphorePermit;

use super::registry::{EndOutcome, Registry};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{HoldRef, Release, Session};
use crate::kind::Nesting;

/// A share of a hold. Dropping a share ends it. A release that has to be sent is sent in the background.
pub(crate) struct HoldShare {
    registry: Arc<Registry>,
    hold_ref: Arc<HoldRef>,
    ended: bool,
    /// The permit from the gate of the enclosing guard. Guards that `Guard::reenter` makes share it. It is dropped
    /// after [`drop`](Drop::drop) has ended the share, so that the next branch of the scope enters only then.
    gate: Option<Arc<OwnedSemaphorePermit>>,
}

// The gate is a semaphore of tokio's, which a panic elsewhere leaves as it was.
impl UnwindSafe for HoldShare {}
impl RefUnwindSafe for HoldShare {}

/// The work that remains after a share has ended.
#[allow(
    clippy::large_enum_variant,
    reason = "it is moved once, from the end of a guard into its release"
)]
pub(crate) enum Remaining {
    Nothing(Result<(), Error>),
    /// This release has to be sent to the server.
    Release(Release),
}

/// Re-enters the hold of a share.
pub(crate) struct ShareRef {
    registry: Arc<Registry>,
    hold_ref: Arc<HoldRef>,
    gate: Option<Arc<OwnedSemaphorePermit>>,
}

impl ShareRef {
    /// Another share of the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<HoldShare, Error> {
        let resource = &self.hold_ref.hold().resource;
        if let Nesting::Never(reason) = resource.kind.within(resource.kind) {
            return Err(Error::deadlock(resource.key.text(), reason));
        }
        let open = AtomicBool::new(false);
        let (term, margin) = (self.hold_ref.term(), self.hold_ref.margin());
        match self.hold_ref.nest(&open, term, margin) {
            Ok(nested) => {
                let (registry, gate) = (Arc::clone(&self.registry), self.gate.clone());
                let share = HoldShare::new(registry, nested, gate);
                self.registry.session.look_at(share.hold_ref().hold());
                Ok(share)
            }
            Err(error) => {
                let key = resource.key.text();
                let ended = || Error::lost(key, Loss::Expired);
                Err(error.into_error(key).unwrap_or_else(ended))
            }
        }
    }
}

impl HoldShare {
    pub(crate) fn new(
        registry: Arc<Registry>,
        hold_ref: Arc<HoldRef>,
        gate: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Self {
        Self {
            registry,
            hold_ref,
            ended: false,
            gate,
        }
    }

    /// Keeps the gate of the enclosing guard closed until the share has ended.
    pub(crate) fn keep_gate(&mut self, permit: Arc<OwnedSemaphorePermit>) {
        self.gate = Some(permit);
    }

    pub(crate) fn hold_ref(&self) -> &Arc<HoldRef> {
        &self.hold_ref
    }

    /// What its client has in common.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.registry.session
    }

    pub(crate) fn key(&self) -> &str {
        self.hold_ref.hold().resource.key.text()
    }

    /// Another share of the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<Self, Error> {
        self.to_ref().reenter()
    }

    /// What re-enters the hold later, as long as this share has not ended.
    pub(crate) fn to_ref(&self) -> ShareRef {
        ShareRef {
            registry: Arc::clone(&self.registry),
            hold_ref: Arc::clone(&self.hold_ref),
            gate: self.gate.clone(),
        }
    }

    /// Decreases the count, and returns the work that remains.
    pub(crate) fn end(mut self) -> Remaining {
        self.ended = true;
        let session = &self.registry.session;
        let _ending = session.ending();
        let (term, now) = (self.hold_ref.term(), self.hold_ref.now());
        let late = term.has_ended(now).then(|| term.loss());
        match (self.end_at(now, false), late) {
            (EndOutcome::Done, None) => Remaining::Nothing(Ok(())),
            (EndOutcome::Done, Some(loss)) | (EndOutcome::Lost(loss), _) => {
                Remaining::Nothing(Err(Error::lost(self.key(), loss)))
            }
            (EndOutcome::Release(pending), late) => {
                let deadline = self.hold_ref.hold().deadline();
                Remaining::Release(Release::new(session, pending, deadline, late))
            }
        }
    }

    fn end_at(&self, now: Tick, was_dropped: bool) -> EndOutcome {
        if self.hold_ref.is_left_alone() {
            self.hold_ref.end_alone();
            return EndOutcome::Lost(Loss::NewIdentity);
        }
        self.registry.end(&self.hold_ref, was_dropped, now)
    }

    /// Ends the share without giving permits back.
    pub(crate) fn forget(mut self) {
        self.ended = true;
        let session = &self.registry.session;
        let _ending = session.ending();
        if let EndOutcome::Release(pending) = self.end_at(self.hold_ref.now(), false) {
            session.release_later(pending.without_permits());
        }
    }

    /// Ends the share, and leaves the hold in the server until its lease ends. It is no longer renewed.
    pub(crate) fn leave_to_its_lease(mut self) -> Result<(), Error> {
        self.ended = true;
        match self.end_at(self.hold_ref.now(), false) {
            EndOutcome::Done => Ok(()),
            EndOutcome::Lost(loss) => Err(Error::lost(self.key(), loss)),
            EndOutcome::Release(pending) => {
                pending.abandon(&self.registry.session);
                Ok(())
            }
        }
    }
}

impl Drop for HoldShare {
    /// Decreases the count at once. A release that has to be sent is sent in the background.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        let session = &self.registry.session;
        let _ending = session.ending();
        if let EndOutcome::Release(pending) = self.end_at(self.hold_ref.now(), true) {
            session.release_later(pending);
        }
    }
}

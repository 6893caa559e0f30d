//! One guard's part in one hold, and how it ends: confirmed, or in the background when it is dropped.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::registry::{EndOutcome, Registry};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{HoldRef, Member, NestError, Release};
use crate::kind::Nesting;

/// A part in a hold. Dropped, it ends in the background.
pub(crate) struct HoldShare {
    registry: Arc<Registry>,
    hold_ref: Arc<HoldRef>,
    ended: bool,
    /// The place at the gate of the guard around this one, shared by those that entered again by hand.
    gate: Option<Arc<OwnedSemaphorePermit>>,
    /// So long before its deadline it no longer counts.
    margin: Duration,
}

/// What is left to do of a part that ended.
#[allow(
    clippy::large_enum_variant,
    reason = "it is moved once, from the end of a guard into its release"
)]
pub(crate) enum Remaining {
    Nothing(Result<(), Error>),
    /// The server has to be told.
    Release(Release),
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
            margin: Duration::ZERO,
        }
    }

    /// One of a quorum: so long before its deadline it no longer counts.
    pub(crate) fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    pub(crate) fn hold_ref(&self) -> &Arc<HoldRef> {
        &self.hold_ref
    }

    pub(crate) fn now(&self) -> Tick {
        self.registry.session.now()
    }

    pub(crate) fn key(&self) -> &str {
        self.hold_ref.hold().resource.key.text()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold_ref.is_held(self.now().after(self.margin))
    }

    pub(crate) fn member(&self) -> Member {
        let session = &self.registry.session;
        Member {
            client: session.id,
            clock: session.clock.clone(),
            hold_ref: Arc::clone(&self.hold_ref),
            margin: self.margin,
        }
    }

    /// Another part in the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<Self, Error> {
        let kind = self.hold_ref.hold().resource.kind;
        if let Nesting::Never(reason) = kind.within(kind) {
            let key = self.key().to_owned();
            return Err(Error::Nested { key, reason });
        }
        let open = AtomicBool::new(false);
        let term = self.hold_ref.term();
        match self.hold_ref.nest(&open, term, self.now()) {
            Ok(hold_ref) => {
                self.registry.session.look_at(hold_ref.hold());
                let gate = self.gate.clone();
                let again = Self::new(Arc::clone(&self.registry), hold_ref, gate);
                Ok(again.with_margin(self.margin))
            }
            Err(NestError::Lost(loss)) => Err(Error::lost(self.key(), loss)),
            Err(NestError::Closed) => Err(Error::lost(self.key(), Loss::Expired)),
        }
    }

    /// Takes the count down, and answers what is left to do.
    pub(crate) fn end(mut self) -> Remaining {
        let late = self.hold_ref.term().has_ended(self.now());
        self.ended = true;
        match self.registry.end(&self.hold_ref) {
            EndOutcome::Done if late => {
                let loss = self.hold_ref.term().loss();
                Remaining::Nothing(Err(Error::lost(self.key(), loss)))
            }
            EndOutcome::Done => Remaining::Nothing(Ok(())),
            EndOutcome::Lost(loss) => Remaining::Nothing(Err(Error::lost(self.key(), loss))),
            EndOutcome::Release(pending) => {
                let deadline = self.hold_ref.hold().deadline();
                let late = late.then(|| self.hold_ref.term().loss());
                Remaining::Release(Release::new(
                    &self.registry.session,
                    pending,
                    deadline,
                    late,
                ))
            }
        }
    }

    /// Ends, and gives no permits back.
    pub(crate) fn forget(mut self) {
        self.ended = true;
        if let EndOutcome::Release(pending) = self.registry.end(&self.hold_ref) {
            let session = &self.registry.session;
            session.release_later(pending.without_permits());
        }
    }

    /// Ends, and leaves the hold in the server to its lease, renewed by nobody.
    pub(crate) fn leave_to_its_lease(mut self) -> Result<(), Error> {
        self.ended = true;
        match self.registry.end(&self.hold_ref) {
            EndOutcome::Done => Ok(()),
            EndOutcome::Lost(loss) => Err(Error::lost(self.key(), loss)),
            EndOutcome::Release(pending) => {
                pending.abandon();
                Ok(())
            }
        }
    }
}

impl Drop for HoldShare {
    /// Takes the count down at once and leaves what has to be sent to the background.
    fn drop(&mut self) {
        if !self.ended
            && let EndOutcome::Release(pending) = self.registry.end(&self.hold_ref)
        {
            self.registry.session.release_later(pending);
        }
    }
}

//! One guard's part in one hold, and how it ends: confirmed, or in the background when it is dropped.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::registry::{End, Registry};
use crate::clock::Tick;
use crate::error::{Error, Loss};
use crate::hold::{Member, Nested, Release, Tenure};
use crate::kind::Nesting;

/// A part in a hold. Dropped, it ends in the background.
pub(crate) struct Part {
    registry: Arc<Registry>,
    tenure: Arc<Tenure>,
    ended: bool,
    /// The place at the gate of the guard around this one, shared by those that entered again by hand.
    gate: Option<Arc<OwnedSemaphorePermit>>,
    /// So long before its deadline it no longer counts.
    margin: Duration,
}

/// What is left to do of a part that ended.
pub(crate) enum Left {
    Nothing(Result<(), Error>),
    /// The server has to be told.
    Release(Release),
}

impl Part {
    pub(crate) fn new(
        registry: Arc<Registry>,
        tenure: Arc<Tenure>,
        gate: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Self {
        Self {
            registry,
            tenure,
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

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(crate) fn now(&self) -> Tick {
        self.registry.keeper.now()
    }

    pub(crate) fn key(&self) -> &str {
        self.tenure.hold().key.text()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.tenure.is_held(self.now().after(self.margin))
    }

    pub(crate) fn member(&self) -> Member {
        let keeper = &self.registry.keeper;
        Member {
            client: keeper.id,
            clock: keeper.clock.clone(),
            tenure: Arc::clone(&self.tenure),
            margin: self.margin,
        }
    }

    /// Another part in the same hold, with the same lease.
    pub(crate) fn reenter(&self) -> Result<Self, Error> {
        let kind = self.tenure.hold().kind;
        if let Nesting::Never(reason) = kind.within(kind) {
            let key = self.key().to_owned();
            return Err(Error::Nested { key, reason });
        }
        let open = AtomicBool::new(false);
        let term = self.tenure.term();
        match self.tenure.nest(&open, term, self.now()) {
            Ok(tenure) => {
                self.registry.keeper.look_at(tenure.hold());
                let gate = self.gate.clone();
                let again = Self::new(Arc::clone(&self.registry), tenure, gate);
                Ok(again.with_margin(self.margin))
            }
            Err(Nested::Lost(loss)) => Err(Error::lost(self.key(), loss)),
            Err(Nested::Closed) => Err(Error::lost(self.key(), Loss::Expired)),
        }
    }

    /// Takes the count down, and answers what is left to do.
    pub(crate) fn end(mut self) -> Left {
        let late = self.tenure.term().has_ended(self.now());
        self.ended = true;
        match self.registry.end(&self.tenure) {
            End::Done if late => {
                let loss = self.tenure.term().loss();
                Left::Nothing(Err(Error::lost(self.key(), loss)))
            }
            End::Done => Left::Nothing(Ok(())),
            End::Lost(loss) => Left::Nothing(Err(Error::lost(self.key(), loss))),
            End::Release(debt) => {
                let deadline = self.tenure.hold().deadline();
                let late = late.then(|| self.tenure.term().loss());
                Left::Release(Release::new(&self.registry.keeper, debt, deadline, late))
            }
        }
    }

    /// Ends, and gives no permits back.
    pub(crate) fn forget(mut self) {
        self.ended = true;
        if let End::Release(debt) = self.registry.end(&self.tenure) {
            let keeper = &self.registry.keeper;
            keeper.release_later(debt.giving_nothing_back());
        }
    }

    /// Ends, and leaves the hold in the server to its lease, renewed by nobody.
    pub(crate) fn leave_to_its_lease(mut self) -> Result<(), Error> {
        self.ended = true;
        match self.registry.end(&self.tenure) {
            End::Done => Ok(()),
            End::Lost(loss) => Err(Error::lost(self.key(), loss)),
            End::Release(debt) => {
                debt.forgive();
                Ok(())
            }
        }
    }
}

impl Drop for Part {
    /// Takes the count down at once and leaves what has to be sent to the background.
    fn drop(&mut self) {
        if !self.ended
            && let End::Release(debt) = self.registry.end(&self.tenure)
        {
            self.registry.keeper.release_later(debt);
        }
    }
}

//! The permit of a gate, at which the branches of a scope wait for each other.

use std::sync::Arc;

use crate::sync::{OwnedSemaphorePermit, Semaphore, foreign};

/// Lets one branch of a scope in. Its drop lets the next one in, which wakes that branch's task.
pub(crate) struct GatePermit(Option<OwnedSemaphorePermit>);

impl GatePermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Some(permit))
    }

    pub(crate) fn is_of(&self, gate: &Arc<Semaphore>) -> bool {
        let own = self.0.as_ref().map(OwnedSemaphorePermit::semaphore);
        own.is_some_and(|own| Arc::ptr_eq(own, gate))
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        foreign::make(|| drop(self.0.take()));
    }
}

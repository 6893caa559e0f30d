//! The scopes around an acquisition that have some of its keys.

use super::group::Group;
use crate::acquire::reentry::{ClosedGate, Enclosing, OpenGates, pass_gates, try_gates};
use crate::backend::Through;
use crate::error::Error;
use crate::local::{HoldShare, HoldShares};
use crate::scope::Frames;
use crate::wait::ClientRequest;

/// An acquisition inside of scopes, which may have some of its keys.
pub(super) struct InScopes {
    pub(super) frames: Frames,
    /// One for each key.
    pub(super) requests: Vec<ClientRequest>,
}

impl InScopes {
    fn requests(&self) -> Vec<&ClientRequest> {
        self.requests.iter().collect()
    }

    /// Passes all gates, if none of them is closed.
    pub(super) fn try_gates(&self) -> Result<Result<OpenGates, ClosedGate>, Error> {
        try_gates(&self.frames, &self.requests(), None)
    }

    /// Passes all gates. Waits at the closed one first, if there is one.
    pub(super) async fn pass_gates(&self, closed: Option<ClosedGate>) -> Result<OpenGates, Error> {
        pass_gates(&self.frames, &self.requests(), closed).await
    }

    /// The groups of those keys that have to be acquired.
    pub(super) fn groups(&self, gates: &OpenGates) -> Result<Vec<Group>, Error> {
        let acquired = self.requests.iter().zip(gates).filter_map(|(one, gate)| {
            let mut one = one.clone();
            match gate {
                Some(gate) if !gate.is_beside() => return None,
                Some(gate) => {
                    let write = Through::Write(gate.outer().owner());
                    one.requested_mut().through = Some(Box::new(write));
                }
                None => {}
            }
            Some(one)
        });
        Group::all(acquired)
    }

    /// Enters the scopes that have some of the keys. `shares`: those of the other keys. Returns whether all of these scopes are
    /// still open. If not, the acquisition has to start again.
    pub(super) fn enter(&self, gates: OpenGates, shares: &mut HoldShares) -> Result<bool, Error> {
        for (one, gate) in self.requests.iter().zip(gates) {
            let Some(gate) = gate else {
                continue;
            };
            match gate.enter(&mut one.clone())? {
                None => return Ok(false),
                Some(Enclosing::None) => {}
                Some(Enclosing::Reenter(share, _)) => shares.push(share),
                Some(Enclosing::Beside(beside)) => {
                    let client = one.registry.session.id;
                    let resource = &one.requested().resource;
                    let is_beside = |share: &&mut HoldShare| {
                        let hold_ref = share.hold_ref();
                        hold_ref.client() == client && hold_ref.hold().resource == *resource
                    };
                    if let Some(share) = shares.iter_mut().find(is_beside) {
                        share.keep_gate(beside.permit);
                    }
                }
            }
        }
        Ok(true)
    }
}

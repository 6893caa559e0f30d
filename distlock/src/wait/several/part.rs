//! One part of the keys of an acquisition, and the parts that were granted.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Tick;
use crate::local::{OpenShare, OpenShares, Registry};
use crate::resource::key::Key;
use crate::session::{AbsentAcquisition, Session, Unguarded};
use crate::wait::request::Request;

/// The indices of keys that one command can name.
pub(super) type Part = SmallVec<[usize; 4]>;

/// The indices of the keys that the server is asked for; `None` is all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeysAskedFor(Option<Part>);

impl KeysAskedFor {
    pub(super) fn of(keys: Part, request: &Request) -> Self {
        Self((keys.len() < request.requested.len()).then_some(keys))
    }

    pub(super) fn are_all(&self) -> bool {
        self.0.is_none()
    }

    /// The keys, if they are not all.
    pub(super) fn some(&self) -> Option<&Part> {
        self.0.as_ref()
    }

    /// The index in the request of the key with this index among those that the server is asked for.
    pub(super) fn index(&self, at: usize) -> usize {
        self.some().map_or(at, |asked| asked[at])
    }
}

/// What was granted while other parts of the same acquisition are missing. Dropping it gives everything back.
pub(super) struct GrantedParts {
    registry: Arc<Registry>,
    /// With the indices of their keys.
    granted: Vec<(usize, OpenShare)>,
    /// When the first part was asked for.
    pub(super) since: Tick,
}

impl Request {
    /// Divides keys into parts. The keys of a request are in the order of their slots.
    pub(super) fn parts(
        &self,
        keys: impl IntoIterator<Item = usize>,
        session: &Session,
    ) -> SmallVec<[Part; 1]> {
        let mut parts = SmallVec::<[Part; 1]>::new();
        let mut last = None;
        for at in keys {
            let slot = session.backend.home(self.key(at)).slot;
            match parts.last_mut() {
                Some(part) if last == Some(slot) => part.push(at),
                _ => parts.push(Part::from_elem(at, 1)),
            }
            last = Some(slot);
        }
        parts
    }

    /// Everything that was requested is granted, so it is renewed from now on, unless other requests are missing.
    pub(super) fn have_guards(&self, shares: &OpenShares) {
        if self.has_several_keys() && !self.is_part {
            shares.iter().for_each(OpenShare::has_guard);
        }
    }

    /// Whether one command cannot name all keys.
    pub(super) fn is_over_several_slots(&self, session: &Session) -> bool {
        let slot = |at: usize| session.backend.home(self.key(at)).slot;
        let last = self.requested.len() - 1;
        // The keys are in the order of their slots.
        slot(0) != slot(last)
    }

    pub(super) fn key(&self, at: usize) -> &Key {
        &self.requested[at].resource.key
    }
}

impl GrantedParts {
    pub(super) fn new(registry: &Arc<Registry>) -> Self {
        Self {
            registry: Arc::clone(registry),
            granted: Vec::new(),
            since: registry.session.now(),
        }
    }

    pub(super) fn add(&mut self, part: &Part, shares: OpenShares) {
        self.granted.extend(part.iter().copied().zip(shares));
    }

    /// For how long others were kept from these keys.
    pub(super) fn taken_for(&self) -> Duration {
        if self.granted.is_empty() {
            Duration::ZERO
        } else {
            self.registry.session.now().since(self.since)
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.granted.is_empty()
    }

    /// Whether all of it is still held. It is not renewed while other parts are missing.
    pub(super) fn are_held(&self) -> bool {
        let now = self.registry.session.now();
        let mut granted = self.granted.iter();
        granted.all(|(_, share)| share.hold().is_held(now))
    }

    /// Everything that was granted, which is the caller's from now on.
    pub(super) fn into_all(self) -> Vec<(usize, OpenShare)> {
        self.granted
    }
}

impl Unguarded for GrantedParts {
    fn end(self, _session: &Arc<Session>) -> Option<AbsentAcquisition> {
        let (_, first) = self.granted.first()?;
        // The drop of the parts ends them.
        Some(first.absent())
    }
}

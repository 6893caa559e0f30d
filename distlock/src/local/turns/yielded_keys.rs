//! What the waiters of a client know of the keys that it left to others.

use super::round_robin::RoundRobin;
use super::yield_list::YieldList;
use crate::clock::Tick;
use crate::resource::key::Resource;
use crate::sync::Mutex;

/// A [`YieldList`] under a mutex of its own, which is taken last.
#[derive(Debug, Default)]
pub(crate) struct YieldedKeys(Mutex<YieldList<Resource>>);

impl YieldedKeys {
    /// The other clients that heard of the release may go first.
    pub(crate) fn add(&self, resource: &Resource, others: RoundRobin, now: Tick) {
        self.0.lock().add(resource.clone(), others, now);
    }

    /// The other clients that may go first for this key. Only the first call for a key returns them.
    pub(crate) fn take(&self, resource: &Resource, now: Tick) -> Option<RoundRobin> {
        self.0.lock().take(resource, now)
    }

    /// Whether a waiter that yields waits until somebody takes the key, for longer than clients of this crate need.
    pub(crate) fn may_wait_for_foreign(&self, resource: &Resource, now: Tick) -> bool {
        self.0.lock().may_wait(resource, now)
    }

    /// A waiter yielded, and nobody took the key.
    pub(crate) fn nobody_took(&self, resource: &Resource, now: Tick) {
        self.0.lock().in_vain(resource.clone(), now);
    }

    /// All who listen have taken the key in turn.
    pub(crate) fn all_take(&self, resource: &Resource) {
        self.0.lock().all_take(resource);
    }

    /// Notes who was seen with the key: a client of this crate, or one of another library.
    pub(crate) fn saw_taker(&self, resource: &Resource, is_foreign: bool, now: Tick) {
        let resource = resource.clone();
        self.0.lock().saw_taker(resource, is_foreign, now);
    }

    /// Whether all who take the key are clients of this crate, as far as recent looks have shown.
    pub(crate) fn takers_are_ours(&self, resource: &Resource, now: Tick) -> bool {
        self.0.lock().are_ours(resource, now)
    }
}

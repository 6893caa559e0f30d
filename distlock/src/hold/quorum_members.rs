//! The holds of a Redlock's guard, which change: the hold comes back to servers that it missed or lost.

use std::any::Any;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Weak};

use uuid::Uuid;

use super::HoldRef;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Changes, Mutex};

/// The holds of a Redlock's guard, one for each server that has granted it.
#[derive(Debug)]
pub(crate) struct QuorumMembers {
    /// What the guards of one Redlock's hold have in common. The part of the crate that acquires a Redlock knows its type.
    pub(super) parts: Weak<dyn Any + Send + Sync>,
    /// The clients of all its servers, in ascending order.
    pub(super) clients: Box<[Uuid]>,
    now: Mutex<Arc<[Arc<HoldRef>]>>,
    pub(super) changes: Changes,
    pub(super) ended: AtomicBool,
}

// A panic leaves nothing half-changed here: the members are replaced as a whole.
impl RefUnwindSafe for QuorumMembers {}

pub(super) fn sorted(clients: impl IntoIterator<Item = Uuid>) -> Box<[Uuid]> {
    let mut clients: Vec<Uuid> = clients.into_iter().collect();
    clients.sort_unstable();
    clients.into()
}

/// Whether at least `needs` of these are held, by this process's clock.
pub(super) fn enough_are_held(members: &[Arc<HoldRef>], needs: usize) -> bool {
    let held = members.iter().filter(|member| member.is_held());
    held.count() >= needs
}

impl QuorumMembers {
    /// The first members. `clients`: those of all servers, whether they granted the hold or not.
    pub(crate) fn new(
        parts: Weak<dyn Any + Send + Sync>,
        clients: impl IntoIterator<Item = Uuid>,
        members: impl IntoIterator<Item = Arc<HoldRef>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            parts,
            clients: sorted(clients),
            now: Mutex::new(members.into_iter().collect()),
            changes: Changes::default(),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn now(&self) -> Arc<[Arc<HoldRef>]> {
        Arc::clone(&self.now.lock())
    }

    /// Whether at least `needs` of the members are held, by this process's clock.
    pub(crate) fn are_held(&self, needs: usize) -> bool {
        enough_are_held(&self.now(), needs)
    }

    /// Adds a member, in the place of an earlier one on the same server.
    pub(crate) fn put(&self, member: &Arc<HoldRef>) {
        let former = {
            let mut members = self.now.lock();
            let others = members.iter().filter(|old| old.client() != member.client());
            let others = others.chain([member]).map(Arc::clone).collect();
            std::mem::replace(&mut *members, others)
        };
        // The drop of a member and the wakers are foreign code. Neither is called under the mutex.
        drop(former);
        self.changes.announce();
    }

    /// Records that the guard ends, before its shares do.
    pub(crate) fn end(&self) {
        // Release: pairs with the load in `HoldView::has_ended`.
        self.ended.store(true, Ordering::Release);
    }
}

//! The parts of a Redlock's hold, and the life of the task that brings missing ones [back](super::regain).

use std::panic::RefUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable};

use super::HoldShares;
use super::guards::QuorumGuards;
use crate::hold::{QuorumMembers, QuorumTally};
use crate::session::HoldTask;
use crate::sync::runtime::{Handle, Id};
use crate::sync::task::boxed;
use crate::sync::{Mutex, all};
use crate::wait::ClientRequest;

/// The parts of the hold, one for each server that has granted it.
pub(super) struct QuorumParts {
    pub(super) requests: Vec<ClientRequest>,
    pub(super) quorum: usize,
    /// What the parts count.
    pub(super) tally: Arc<QuorumTally>,
    pub(super) guards: QuorumGuards,
    /// Brings the hold back. `None` while there are only fixed leases, which nothing renews, and while no runtime is known.
    pub(super) task: Mutex<Option<RegainEntry>>,
}

/// The task of a hold, as its guards know it.
pub(super) struct RegainEntry {
    /// Tells it from a later one.
    mark: Arc<()>,
    abort: AbortHandle,
}

/// What the task of a hold keeps until it ends.
struct RegainTask {
    parts: Arc<QuorumParts>,
    mark: Arc<()>,
    runtime: Id,
    is_done: bool,
}

// A panic leaves nothing half-changed here: no foreign code runs under the mutexes.
impl RefUnwindSafe for QuorumParts {}

/// The task of one hold. It is aborted when the last guard ends.
async fn bring_back(mut running: RegainTask) {
    let parts = &running.parts;
    // Each server has a loop of its own. A server that does not answer delays no other server.
    let servers = parts.requests.iter().map(|one| parts.keep_on(one));
    all(servers).await;
    running.is_done = true;
}

impl Drop for RegainTask {
    /// If the task ended with its runtime, it is started again in another one that the clients know, or by their next call.
    fn drop(&mut self) {
        let requests = &self.parts.requests;
        let sessions = || requests.iter().map(|one| &one.registry.session);
        // A copy of the process may have none of the threads that would unlock a mutex.
        if sessions().all(|session| session.identity.is_known_invalid()) {
            return;
        }
        // The last guard takes the task before it aborts it.
        if !self.parts.forget_task(&self.mark) || self.is_done {
            return;
        }
        let parts = Arc::downgrade(&self.parts);
        let task: Weak<dyn HoldTask> = parts;
        for session in sessions() {
            session.restart_elsewhere(Weak::clone(&task), self.runtime);
        }
    }
}

impl HoldTask for QuorumParts {
    fn start_in(self: Arc<Self>, runtime: &Handle) {
        if self.guards.kept_for().is_none() {
            return;
        }
        let mark = Arc::new(());
        let (abort, registration) = AbortHandle::new_pair();
        {
            let mut task = self.task.lock();
            if task.is_some() {
                return;
            }
            *task = Some(RegainEntry {
                mark: Arc::clone(&mark),
                abort,
            });
        }
        let running = RegainTask {
            parts: Arc::clone(&self),
            mark,
            runtime: runtime.id(),
            is_done: false,
        };
        // Outside of the mutex: a runtime that has ended drops the task at once.
        let task = Abortable::new(bring_back(running), registration);
        drop(runtime.spawn(boxed(task.map(drop))));
    }
}

impl QuorumParts {
    /// Starts the task that brings the hold back, if there is a guard that is renewed.
    pub(super) fn start_task(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current() {
            Arc::clone(self).start_in(&runtime);
        }
    }

    /// The task with this mark has ended. Returns whether the guards still needed it.
    fn forget_task(&self, mark: &Arc<()>) -> bool {
        let mut task = self.task.lock();
        task.take_if(|task| Arc::ptr_eq(&task.mark, mark)).is_some()
    }

    /// Ends a guard, and the task with the last one. Returns whether it was the last one. The caller ends the shares.
    pub(super) fn end_guard(&self, members: &Arc<QuorumMembers>) -> (HoldShares, bool) {
        let (shares, was_last, task) = {
            // Both under one mutex: a guard that begins meanwhile finds no task, and starts one.
            let mut task = self.task.lock();
            let (shares, was_last) = self.guards.remove(members);
            (shares, was_last, task.take_if(|_| was_last))
        };
        if let Some(RegainEntry { abort, .. }) = task {
            // What it was granted meanwhile is dropped with its future, and so released.
            abort.abort();
        }
        (shares, was_last)
    }
}

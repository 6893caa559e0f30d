//! The tasks of one client. Each runs while there is work for it, in the runtime of a caller.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;

use super::release::releaser;
use super::{Session, free, peek, watchdog};
use crate::config::RETRY_BACKOFF;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::on_demand::{OnDemandTask, RunningTask};
use crate::sync::runtime::{Handle, Id};
use crate::sync::task::boxed;
use crate::telemetry;

/// Which tasks run, and where the next one is started.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    watchdog: OnDemandTask,
    pub(super) releaser: OnDemandTask,
    peeks: OnDemandTask,
    free: OnDemandTask,
    /// Whether a task has ended with its runtime since the last call of [`start_tasks`](Session::start_tasks).
    was_cut_off: AtomicBool,
    /// For drops on threads without a runtime, and for tasks whose runtime has ended.
    runtimes: Mutex<Runtimes>,
    /// The tasks of holds that have ended with their runtimes, until another runtime is known.
    hold_tasks: Mutex<Vec<Weak<dyn HoldTask>>>,
    /// Whether the log says already that the last runtime has ended too early, and no task has run since.
    is_end_told: AtomicBool,
}

/// The task of a single hold. It needs a runtime as the tasks of a client do.
pub(crate) trait HoldTask: Send + Sync {
    /// Starts the task in this runtime, unless it runs already or has no work any more.
    fn start_in(self: Arc<Self>, runtime: &Handle);
}

/// The runtimes of callers, that of the newest caller last.
///
/// One that is ending may be the last: its tasks call the client when they drop their guards. It is forgotten when a task of
/// the client ends with it, and the runtime before it is used again.
#[derive(Debug, Default)]
struct Runtimes(Vec<Handle>);

/// How many runtimes a client remembers. Most programs have one. A handle keeps two files of its runtime open, also after that has
/// ended.
const RUNTIMES: usize = 8;

impl Runtimes {
    /// Makes this runtime the newest. Returns one that is no longer remembered.
    fn note(&mut self, here: &Handle) -> Option<Handle> {
        // Nearly every call comes from the same runtime as the last one.
        if self.0.last().is_some_and(|newest| newest.id() == here.id()) {
            return None;
        }
        let former = self.forget(here.id());
        let oldest = (self.0.len() == RUNTIMES).then(|| self.0.remove(0));
        self.0.push(here.clone());
        former.or(oldest)
    }

    fn forget(&mut self, ended: Id) -> Option<Handle> {
        let at = self.0.iter().position(|known| known.id() == ended)?;
        Some(self.0.remove(at))
    }
}

impl Tasks {
    /// Remembers the caller's runtime, if it has one. A task that is started in a runtime that has ended ends at once.
    fn note_runtime(&self) {
        // Asked before the mutex is locked, which all callers share.
        let Ok(here) = Handle::try_current() else {
            return;
        };
        // Dropped outside of the mutex, here and below.
        let _former = self.runtimes.lock().note(&here);
    }

    /// Does not use a runtime any more that has ended, unless there is another call from it.
    fn forget_runtime(&self, ended: Id) {
        let _ended = self.runtimes.lock().forget(ended);
    }

    /// Notes that a task has ended with its runtime, and may have work.
    fn note_cut_off(&self) {
        // Release: a thread that finds it noted also finds that the task does not run.
        self.was_cut_off.store(true, Ordering::Release);
    }

    /// Whether that was noted since it was taken last.
    fn is_cut_off(&self) -> bool {
        // Acquire: pairs with `note_cut_off`.
        self.was_cut_off.load(Ordering::Acquire)
    }

    /// Whether that was noted since the last call.
    fn take_cut_off(&self) -> bool {
        // Read first: nearly always nothing is noted, and a write would move the cache line between the cores.
        self.is_cut_off() && self.was_cut_off.swap(false, Ordering::AcqRel)
    }

    /// The runtime of the newest caller.
    fn newest_runtime(&self) -> Option<Handle> {
        self.runtimes.lock().0.last().cloned()
    }

    /// Starts the tasks of holds that have ended with their runtimes.
    fn start_hold_tasks(&self) {
        let Some(newest) = self.newest_runtime() else {
            // Noted again, because the next caller may have a runtime.
            return self.note_cut_off();
        };
        let hold_tasks = std::mem::take(&mut *self.hold_tasks.lock());
        // Outside of the mutex: a runtime that has ended drops the task at once, which is then added again.
        for task in hold_tasks.iter().filter_map(Weak::upgrade) {
            task.start_in(&newest);
        }
    }

    /// Whether a task of this session with work does not run.
    fn are_lacking(&self, session: &Session) -> bool {
        !self.watchdog.is_running()
            || session.releaser.has_work() && !self.releaser.is_running()
            || session.peeks.has_work() && !self.peeks.is_running()
            || session.free.has_work() && !self.free.is_running()
    }

    fn start_in(&self, runtime: &Handle, session: &Arc<Session>) {
        if !self.watchdog.is_running() {
            ServingTask::start(session, runtime, &self.watchdog, watchdog::run);
        }
        if session.releaser.has_work() && !self.releaser.is_running() {
            ServingTask::start(session, runtime, &self.releaser, releaser::run);
        }
        if session.peeks.has_work() && !self.peeks.is_running() {
            ServingTask::start(session, runtime, &self.peeks, peek::run);
        }
        if session.free.has_work() && !self.free.is_running() {
            ServingTask::start(session, runtime, &self.free, free::run);
        }
    }

    /// Starts the releaser of a retired client again, if it has work and time is left.
    fn restart_releaser_in(&self, runtime: &Handle, session: &Arc<Session>) {
        // What had not been answered when another identity was taken is put back, and nobody sends it.
        if session.identity.is_known_invalid() {
            return;
        }
        // Asked after the task has recorded its end: a caller that adds a release later finds that no task runs.
        if session.releaser.has_work()
            && !self.releaser.is_running()
            && session.now() < session.retirement.last_moment()
        {
            ServingTask::start(session, runtime, &self.releaser, releaser::run);
        }
    }
}

impl Session {
    /// Starts the tasks that have work and are not running, in the caller's runtime. On a thread without a runtime, it uses
    /// the newest runtime that was seen. A caller that has given one of them work calls it. The tasks of holds that ended with
    /// their runtime are started as well.
    pub(crate) fn start_tasks(self: &Arc<Self>) {
        self.tasks.note_runtime();
        // Taken before the tasks are looked at: one that ends after that notes it again.
        if self.tasks.take_cut_off() {
            self.tasks.start_hold_tasks();
        }
        // Asked first: nearly every caller finds all tasks running, and needs no copy of the handle.
        if self.tasks.are_lacking(self)
            && let Some(runtime) = self.tasks.newest_runtime()
        {
            self.tasks.start_in(&runtime, self);
        }
    }

    /// Starts the releaser of a retired client again, if it has ended with its runtime: in the caller's runtime, or in the newest one
    /// that was seen. Nobody else will make a call of this client.
    pub(crate) fn tend_releaser(self: &Arc<Self>) {
        self.tasks.note_runtime();
        if let Some(runtime) = self.tasks.newest_runtime() {
            self.tasks.restart_releaser_in(&runtime, self);
        }
    }

    /// Starts the watchdog, and the tasks that ended with their runtime. For callers who have given the other tasks no work:
    /// it does not ask them, which would take the mutex of each.
    pub(crate) fn tend_tasks(self: &Arc<Self>) {
        self.tasks.note_runtime();
        if self.tasks.is_cut_off() || !self.tasks.watchdog.is_running() {
            self.start_tasks();
        }
    }

    /// Says once that the last known runtime has ended before all was released: nobody does it if the program ends now. What is in
    /// memory ends with the program.
    fn tell_early_end(&self) {
        let is_left = self.backend.has_connection()
            && !self.closed.is_set()
            && (!self.watchdog.is_empty() || self.releaser.pending() > 0);
        // Relaxed: nothing else depends on who says it.
        if is_left && !self.tasks.is_end_told.swap(true, Ordering::Relaxed) {
            telemetry::runtime_ended_early(&self.backend.servers());
        }
    }

    /// Starts the task of a hold again, which has ended with the runtime `ended`: in the newest of the others, or by the next call of
    /// this client in another one.
    pub(crate) fn restart_elsewhere(&self, task: Weak<dyn HoldTask>, ended: Id) {
        self.tasks.hold_tasks.lock().push(task);
        // Before the newest runtime is read: a caller whose runtime is noted after that finds this.
        self.tasks.note_cut_off();
        self.tasks.forget_runtime(ended);
        self.tasks.start_hold_tasks();
    }
}

/// A running task of a client.
struct ServingTask {
    session: Arc<Session>,
    running: Option<RunningTask>,
    runtime: Id,
    done: bool,
}

impl ServingTask {
    fn start<F>(
        session: &Arc<Session>,
        runtime: &Handle,
        task: &OnDemandTask,
        run: impl Fn(Arc<Session>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(running) = task.begin() else {
            return;
        };
        let serving = Self {
            session: Arc::clone(session),
            running: Some(running),
            runtime: runtime.id(),
            done: false,
        };
        // The handle is not needed: the drop of `serving` notices how the task ends.
        drop(runtime.spawn(boxed(async move {
            // Moved in here, so that it is dropped after the task: by then the task has put back what it had in flight.
            let mut serving = serving;
            // A runtime that runs tasks is not ending. Relaxed: nothing else depends on it.
            serving
                .session
                .tasks
                .is_end_told
                .store(false, Ordering::Relaxed);
            // The task wakes waiters, and a user's waker may panic. The task is then run again, because the other holds
            // still need it.
            while let Err(_panic) = AssertUnwindSafe(run(Arc::clone(&serving.session)))
                .catch_unwind()
                .await
            {
                let clock = &serving.session.clock;
                clock
                    .sleep_until(clock.now().after(RETRY_BACKOFF.first))
                    .await;
            }
            serving.done = true;
        })));
    }
}

impl Drop for ServingTask {
    /// If the task ended with its runtime, starts it again in the newest of the others. Otherwise a holder there might lose its
    /// lock, because it may make no call for a long time. If that runtime has ended as well, it drops the task at once, which
    /// tries the next one.
    fn drop(&mut self) {
        // First: the tasks that are started below may be this one.
        drop(self.running.take());
        // Nothing is left to do, and a copy of the process may have none of the threads that would unlock a mutex.
        if self.session.identity.is_known_invalid() {
            return;
        }
        if self.done {
            // A release that came while the releaser ended has woken that task alone.
            if let Some(newest) = self.session.tasks.newest_runtime() {
                self.session
                    .tasks
                    .restart_releaser_in(&newest, &self.session);
            }
            return;
        }
        let tasks = &self.session.tasks;
        // Before the newest runtime is read: a caller whose runtime is noted after that finds this.
        tasks.note_cut_off();
        tasks.forget_runtime(self.runtime);
        let Some(newest) = tasks.newest_runtime() else {
            return self.session.tell_early_end();
        };
        if self.session.retirement.has_begun() {
            // Releases are all that a client without a handle still has to do.
            tasks.restart_releaser_in(&newest, &self.session);
        } else {
            tasks.start_in(&newest, &self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    // An explored run has a single runtime.
    #[cfg(not(distlock_shuttle))]
    #[test]
    fn runtimes_are_remembered_in_the_order_of_their_last_calls() {
        use tokio::runtime::{Builder, Runtime};

        use super::{Handle, RUNTIMES, Runtimes};

        let made: Vec<Runtime> = (0..=RUNTIMES)
            .map(|_| Builder::new_current_thread().build().unwrap())
            .collect();
        let mut known = Runtimes::default();
        for runtime in made[..RUNTIMES].iter().chain(&made[..1]) {
            known.note(runtime.handle());
        }
        let id = |at: usize| made[at].handle().id();
        assert_eq!(known.0.last().map(Handle::id), Some(id(0)));
        // There is no room for another one: the oldest goes.
        let gone = known.note(made[RUNTIMES].handle());
        assert_eq!(gone.map(|gone| gone.id()), Some(id(1)));
        assert!(known.note(made[RUNTIMES].handle()).is_none());
        assert_eq!(known.0.len(), RUNTIMES);
        known.forget(id(RUNTIMES));
        assert_eq!(known.0.last().map(Handle::id), Some(id(0)));
    }
}

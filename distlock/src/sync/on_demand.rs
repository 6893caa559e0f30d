//! Tasks of a client that run only while there is work for them.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};

/// A task that is started when there is work, and of which one runs at a time. Nothing is left of it when it ends, also when it
/// ends with its runtime.
#[derive(Debug, Default)]
pub(crate) struct OnDemandTask {
    runs: Arc<AtomicBool>,
}

/// Kept by a task that runs. Its drop records that the task has ended, for whatever reason.
#[must_use = "dropping it records that the task has ended"]
#[derive(Debug)]
pub(crate) struct RunningTask(Arc<AtomicBool>);

impl OnDemandTask {
    /// Whether one runs. The answer may be out of date when it arrives: [`begin`](OnDemandTask::begin) decides.
    ///
    /// A caller that nearly always finds the task running asks this first: `begin` writes, and a write would move the cache line
    /// between the cores.
    pub(crate) fn is_running(&self) -> bool {
        // Acquire: pairs with the store in the drop of `RunningTask`.
        self.runs.load(Ordering::Acquire)
    }

    /// Called before the task is started. The task keeps what this returns. `None` if one runs already.
    pub(crate) fn begin(&self) -> Option<RunningTask> {
        // One swap: of several callers exactly one starts the task. Acquire: it sees what the last one has left.
        (!self.runs.swap(true, Ordering::AcqRel)).then(|| RunningTask(Arc::clone(&self.runs)))
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        // Release: the next task sees what this one has put back.
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_runs_at_a_time_and_the_next_begins_when_it_has_ended() {
        let task = OnDemandTask::default();
        let running = task.begin();
        assert!(running.is_some() && task.is_running());
        assert!(task.begin().is_none());
        drop(running);
        assert!(!task.is_running() && task.begin().is_some());
    }
}

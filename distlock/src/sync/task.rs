//! Tasks.

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::task::{AbortHandle, Id, spawn, try_id, yield_now};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{Id, try_id};
#[cfg(all(test, distlock_shuttle))]
pub(crate) use shuttle::future::{AbortHandle, JoinHandle, spawn, yield_now};

#[cfg(all(test, distlock_shuttle))]
mod explored {
    pub(crate) type Id = shuttle::scheduler::TaskId;

    pub(crate) fn try_id() -> Option<Id> {
        shuttle::current::try_get_current_task()
    }
}

//! What runs a piece of code.

use std::thread::{self, ThreadId};

use crate::sync::runtime::Handle;
use crate::sync::task;

/// A task, or the body of a `block_on`, which is what `#[tokio::main]` and `#[tokio::test]` make. Such a body has no task
/// id, and stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Runner {
    Task(task::Id),
    Body(ThreadId),
}

impl Runner {
    pub(crate) fn current() -> Option<Self> {
        let body = || {
            // Only in a runtime: other executors may move what they run to another thread.
            let _runtime = Handle::try_current().ok()?;
            Some(Self::Body(thread::current().id()))
        };
        task::try_id().map(Self::Task).or_else(body)
    }
}

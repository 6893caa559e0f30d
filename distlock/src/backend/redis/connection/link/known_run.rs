//! Which run of the server a connection leads to, as far as the client has asked.

use std::sync::Arc;

use crate::sync::Mutex;

/// The id of a run; `None` if the user may not ask for it, or if the server has none.
pub(crate) type RunId = Option<Arc<str>>;

/// What is known of the run.
#[derive(Debug, Default)]
pub(crate) struct KnownRun {
    /// The number of the connection over which the run was asked for last, and the answer.
    pub(crate) last: Mutex<Option<(u64, RunId)>>,
    /// Held by the one that asks. The others wait for its answer.
    // Of tokio, since it is held while the server is asked.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

impl KnownRun {
    /// What was answered over a connection.
    pub(crate) fn over(&self, epoch: u64) -> Option<RunId> {
        let last = self.last.lock();
        let (of, run) = last.as_ref()?;
        (*of == epoch).then(|| run.clone())
    }
}

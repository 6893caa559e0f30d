//! Mistakes with waiters that a backend does not see.

use std::pin::Pin;

use tokio::task::JoinSet;

use super::Flaw;

impl Flaw {
    /// An acquisition that may be left unpolled. With [`UnpolledKeepsPlace`](Self::UnpolledKeepsPlace) a task of its own
    /// polls it, which keeps what it is granted until somebody polls the future that this returns.
    ///
    /// # Panics
    /// In that future, if the acquisition panics.
    pub fn around_waiter<T: Send + 'static>(
        flaw: Option<Self>,
        waiter: impl Future<Output = T> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = T> + Send>> {
        if flaw != Some(Self::UnpolledKeepsPlace) {
            return Box::pin(waiter);
        }
        Box::pin(async move {
            // Dropping the set drops the acquisition.
            let mut task = JoinSet::new();
            task.spawn(waiter);
            let ended = task.join_next().await;
            ended.expect("one task").expect("no panic")
        })
    }
}

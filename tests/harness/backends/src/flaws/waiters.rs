//! Mistakes with waiters that a backend does not see.

use std::pin::Pin;
use std::time::Duration;

use distlock::Error;
use distlock::test_util::KeptTask;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::Flaw;

/// The pause between two tries.
const TRY_EVERY: Duration = Duration::from_millis(1);

impl Flaw {
    /// An acquisition that waits by trying `once` again and again, for this long: the mistake of
    /// [`SeveralKeysByTries`](Self::SeveralKeysByTries).
    ///
    /// # Errors
    /// Those of the last try.
    pub async fn by_tries<T, F>(once: impl Fn() -> F, wait: Option<Duration>) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = Instant::now();
        loop {
            match once().await {
                Err(error) if error.is_busy() && wait.is_none_or(|wait| begin.elapsed() < wait) => {
                    sleep(TRY_EVERY).await;
                }
                answer => return answer,
            }
        }
    }

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
            let (ends, ended) = oneshot::channel();
            // Dropping the task drops the acquisition.
            let _task = KeptTask::begin(async move {
                drop(ends.send(waiter.await));
            });
            ended.await.expect("no panic")
        })
    }
}

//! Tasks.

use std::pin::Pin;

#[cfg(not(all(test, distlock_shuttle)))]
pub(crate) use tokio::task::{AbortHandle, Id, spawn, try_id, yield_now};

#[cfg(all(test, distlock_shuttle))]
pub(crate) use self::explored::{Id, all_over, spawn, start, try_id};
#[cfg(all(test, distlock_shuttle))]
pub(crate) use shuttle::future::{AbortHandle, JoinHandle, yield_now};

/// What the tasks of a client carry out, as one type: the compiler makes all of a runtime's parts for a task anew for each type of
/// future, and that is a third of a second for each of twenty.
pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// To be given to `spawn`, except where tasks start so often that the allocation counts.
pub(crate) fn boxed(task: impl Future<Output = ()> + Send + 'static) -> BoxedTask {
    Box::pin(task)
}

#[cfg(all(test, distlock_shuttle))]
mod explored {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::task::{Poll, Waker};

    use scopeguard::guard;

    use super::JoinHandle;

    pub(crate) type Id = shuttle::scheduler::TaskId;

    thread_local! {
        /// How many tasks of the crate have not ended, and who waits for that. A run is explored on one thread.
        static RUNNING: RefCell<(usize, Option<Waker>)> = const { RefCell::new((0, None)) };
    }

    pub(crate) fn try_id() -> Option<Id> {
        shuttle::current::try_get_current_task()
    }

    pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        RUNNING.with_borrow_mut(|(running, _)| *running += 1);
        let ended = guard((), |()| {
            let waker = RUNNING.with_borrow_mut(|(running, waker)| {
                *running = running.saturating_sub(1);
                if *running == 0 { waker.take() } else { None }
            });
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        shuttle::future::spawn(async move {
            // Dropped after the future, in any case.
            let _ended = ended;
            future.await
        })
    }

    /// To be called at the start of each run.
    pub(crate) fn start() {
        drop(RUNNING.take());
    }

    /// Completes when each task of the crate has ended.
    pub(crate) async fn all_over() {
        poll_fn(|cx| {
            RUNNING.with_borrow_mut(|(running, waker)| match running {
                0 => Poll::Ready(()),
                _ => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await;
    }
}

//! Calls of foreign code: wakers, subscribers of the log, recorders of metrics, and functions that the user has set.
//!
//! Such code may do anything: call this crate again, block, or panic. So it never runs under a [mutex](crate::sync) of this
//! crate, and each sort of call goes through one function here. With the feature `test-util` these functions panic if the
//! thread has locked such a mutex. `clippy.toml` names the methods and macros that only this file and `telemetry` may use.

#![allow(
    clippy::disallowed_methods,
    reason = "they are called here, and nowhere else"
)]

#[cfg(feature = "test-util")]
mod marker;

#[cfg(feature = "test-util")]
pub use self::marker::{ForeignPanic, is_waking};

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::panicking;

use crate::sync::{Notify, oneshot, watch};

/// Makes calls of foreign code, also those in the drop of a value. If one panics while the thread unwinds already, the panic goes no
/// further, because a second one would end the process.
#[inline]
pub(crate) fn make(call: impl FnOnce()) {
    if panicking() {
        let _second = catch_unwind(AssertUnwindSafe(call));
    } else {
        call();
    }
}

/// Wakes tasks, by whatever means: a waker may run its task at once.
#[inline]
pub(crate) fn wake(wake: impl FnOnce()) {
    #[cfg(feature = "test-util")]
    marker::check_mutexes("a waker");
    #[cfg(feature = "test-util")]
    let _waking = marker::Waking::begin();
    make(|| {
        wake();
        // Not instead of it: what the crate wakes by changes before it calls a waker.
        #[cfg(feature = "test-util")]
        marker::panic_if_planned("a waker");
    });
}

/// [Wakes](wake) the task of a waker.
pub(crate) fn wake_task(waker: Waker) {
    wake(|| waker.wake());
}

/// Wakes a task that this crate has spawned. Its waker is tokio's, which does not panic.
pub(crate) fn notify_own_task(notify: &Notify) {
    #[cfg(feature = "test-util")]
    marker::check_mutexes("a waker");
    notify.notify_one();
}

/// [Wakes](wake) one task.
#[cfg(feature = "redis")]
pub(crate) fn notify_one(notify: &Notify) {
    wake(|| notify.notify_one());
}

/// Changes a watched value and [wakes](wake) all tasks that watch it.
pub(crate) fn send_modify<T>(sender: &watch::Sender<T>, modify: impl FnOnce(&mut T)) {
    wake(|| sender.send_modify(modify));
}

/// Changes a watched value, and [wakes](wake) all tasks that watch it if `modify` answers `true`. Returns that answer.
#[cfg(feature = "redis")]
pub(crate) fn send_if_modified<T>(
    sender: &watch::Sender<T>,
    modify: impl FnOnce(&mut T) -> bool,
) -> bool {
    let mut is_modified = false;
    wake(|| {
        sender.send_if_modified(|value| {
            is_modified = modify(value);
            is_modified
        });
    });
    is_modified
}

/// Answers a question, and [wakes](wake) the task that has asked. Returns the answer if nobody waits for it any more.
pub(crate) fn answer<T>(question: oneshot::Sender<T>, answer: T) -> Result<(), T> {
    let mut sent = Ok(());
    wake(|| sent = question.send(answer));
    sent
}

/// Calls a function with each item, also with those behind one with which it panics. The first panic goes on after the last call,
/// unless the thread unwinds already.
pub(crate) fn each<T>(items: impl IntoIterator<Item = T>, mut call: impl FnMut(T)) {
    let mut panic = None;
    for item in items {
        // Each call is caught. A second panic during the unwinding of the first one would end the process.
        if let Err(one) = catch_unwind(AssertUnwindSafe(|| call(item))) {
            panic.get_or_insert(one);
        }
    }
    if let Some(panic) = panic
        && !panicking()
    {
        resume_unwind(panic);
    }
}

/// Calls foreign code in a task of this crate that others depend on, and that goes on if the call panics.
#[cfg(feature = "redis")]
pub(crate) fn contain(call: impl FnOnce()) {
    let _panic = catch_unwind(AssertUnwindSafe(call));
}

/// [Wakes](wake) the task of each waker.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    // The mutexes are checked here as well, because usually there is no waker to call.
    #[cfg(feature = "test-util")]
    marker::check_mutexes("a waker");
    each(wakers, wake_task);
}

/// A waker that is given to tokio, and whose panic goes no further.
struct ContainedWaker(Option<Waker>);

impl Wake for ContainedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wake = || self.0.as_ref().map(Waker::wake_by_ref);
        let _panic = catch_unwind(AssertUnwindSafe(wake));
    }
}

impl Drop for ContainedWaker {
    fn drop(&mut self) {
        let waker = self.0.take();
        let _panic = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    }
}

/// Polls a future of tokio that waits beside others: those of a semaphore or of a watched value. Tokio drops the wakers that are behind
/// one that panics, and with a semaphore also what it has granted to those further behind. So no panic of a waker reaches it.
pub(crate) async fn contain_wakers<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let waker = Waker::from(Arc::new(ContainedWaker(Some(cx.waker().clone()))));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// Tells the subscribers of the log of an event or of a span.
#[inline]
pub(crate) fn tell(tell: impl FnOnce()) {
    make(|| {
        #[cfg(feature = "test-util")]
        marker::check("a subscriber of the log");
        tell();
    });
}

/// Counts something in the recorder of metrics.
#[cfg(feature = "metrics")]
#[inline]
pub(crate) fn count(count: impl FnOnce()) {
    make(|| {
        #[cfg(feature = "test-util")]
        marker::check("a recorder of metrics");
        count();
    });
}

/// Registers metrics at the recorder.
#[cfg(feature = "metrics")]
#[inline]
pub(crate) fn register<T>(register: impl FnOnce() -> T) -> T {
    #[cfg(feature = "test-util")]
    marker::check("a recorder of metrics");
    register()
}

/// Calls a function that the user has set.
#[inline]
pub(crate) fn call_user<T>(call: impl FnOnce() -> T) -> T {
    #[cfg(feature = "test-util")]
    marker::check("a function of the user");
    call()
}

#[cfg(test)]
mod tests {
    use scopeguard::guard;

    use super::*;

    /// Without the panic hook, which counts unplanned panics.
    fn planned() -> ! {
        resume_unwind(Box::new("planned"))
    }

    #[test]
    fn each_item_is_called_and_the_first_panic_goes_on() {
        let mut called = Vec::new();
        let calls = catch_unwind(AssertUnwindSafe(|| {
            each(1..=4, |item| {
                called.push(item);
                if item % 2 == 0 {
                    resume_unwind(Box::new(item));
                }
            });
        }));
        assert_eq!(calls.unwrap_err().downcast_ref(), Some(&2));
        assert_eq!(called, [1, 2, 3, 4]);
    }

    #[test]
    fn calls_that_panic_while_the_thread_unwinds_do_not_end_the_process() {
        let mut called = 0;
        let unwinding = catch_unwind(AssertUnwindSafe(|| {
            let _each = guard((), |()| {
                each(0..2, |_| {
                    called += 1;
                    planned();
                });
            });
            planned();
        }));
        assert!(unwinding.is_err());
        assert_eq!(called, 2);
    }
}

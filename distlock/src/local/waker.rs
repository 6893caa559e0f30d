//! How a waiter in a queue is woken, and how it shows that it is still polled.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, foreign};

/// Wakes one waiter, which one task polls. A waiter whose future exists but is not polled cannot be told apart from one that
/// sleeps, so it is asked for a sign now and then.
///
/// Its futures are smaller than those of a `Notify`, because each waiter has room for several of them.
#[derive(Debug, Default)]
pub(crate) struct SlotWaker {
    /// The task that waits to be woken.
    sleeper: AtomicWaker,
    /// The task that answers questions.
    answerer: AtomicWaker,
    /// Whether the waiter was woken and has not noticed it yet.
    is_woken: AtomicBool,
    /// The waiter talks to the server. It answers questions at the same time; a wake-up would make it ask the server again.
    is_with_server: AtomicBool,
    /// Whether it was polled since it was last asked.
    is_present: AtomicBool,
}

impl SlotWaker {
    pub(super) fn wake(&self) {
        // Release, and acquire where it is taken: the waiter sees what was done before, such as that its client is closed. A swap and
        // not a store: it then sees also what was done before another wake-up that it has not noticed.
        let _was_woken = self.is_woken.swap(true, Ordering::Release);
        wake_task_of(&self.sleeper);
    }

    fn take_wake_up(&self) -> bool {
        // Read first: a write would move its cache line between cores, and is rarely needed.
        self.is_woken.load(Ordering::Relaxed) && self.is_woken.swap(false, Ordering::Acquire)
    }

    pub(super) fn woken(&self) -> Woken<'_> {
        Woken {
            waker: self,
            is_registered: false,
        }
    }

    /// Asks the waiter for a sign.
    pub(super) fn ask(&self) {
        // A swap, and acquire: it comes either before the sign of a waiter that goes to the server, and the sign stays, or after it,
        // and the next line sees where the waiter is. After a plain store it could miss both. A task registers its waker
        // before it gives a sign, so a question after that wakes the task.
        self.is_present.swap(false, Ordering::Acquire);
        if self.is_with_server.load(Ordering::Relaxed) {
            wake_task_of(&self.answerer);
        } else {
            self.wake();
        }
    }

    /// Whether it has given a sign since it was asked.
    pub(super) fn is_present(&self) -> bool {
        self.is_present.load(Ordering::Relaxed)
    }

    /// The waiter is polled, and goes to the server or not.
    pub(super) fn note_step(&self, is_with_server: bool) {
        self.is_with_server.store(is_with_server, Ordering::Relaxed);
        self.sign();
    }

    fn sign(&self) {
        // Release: pairs with the swap in `ask`.
        self.is_present.store(true, Ordering::Release);
    }

    /// Answers questions while the waiter talks to the server. Never completes.
    pub(super) fn answer(self: Arc<Self>) -> impl Future<Output = Infallible> {
        Answers {
            waker: self,
            is_registered: false,
        }
    }
}

fn wake_task_of(waker: &AtomicWaker) {
    foreign::wake_each(waker.take());
}

/// Completes when the waiter is woken. See [`QueueSlot::woken`](super::QueueSlot::woken).
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub(crate) struct Woken<'a> {
    waker: &'a SlotWaker,
    is_registered: bool,
}

impl Future for Woken<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waker.take_wake_up() {
            return Poll::Ready(());
        }
        self.is_registered = true;
        self.waker.sleeper.register(cx.waker());
        // Again: a wake-up that came before the waker was there has found no task.
        if self.waker.take_wake_up() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Woken<'_> {
    fn drop(&mut self) {
        if self.is_registered {
            // Here and not with the last reference, which may go under a mutex: the drop of a waker is foreign code.
            drop(self.waker.sleeper.take());
        }
    }
}

/// The future of [`SlotWaker::answer`].
struct Answers {
    waker: Arc<SlotWaker>,
    is_registered: bool,
}

impl Future for Answers {
    type Output = Infallible;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Infallible> {
        // Before the sign: a question after that wakes the task.
        self.is_registered = true;
        self.waker.answerer.register(cx.waker());
        self.waker.sign();
        Poll::Pending
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if self.is_registered {
            // As for `Woken`.
            drop(self.waker.answerer.take());
        }
    }
}

//! How a waiter in a queue is woken, and how it shows that it is still polled.

use std::convert::Infallible;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Notified, Notify, foreign};

/// Wakes one waiter. A waiter whose future exists but is not polled cannot be told apart from one that sleeps, so it is
/// asked for a sign now and then.
#[derive(Debug, Default)]
pub(crate) struct SlotWaker {
    wake: Notify,
    question: Notify,
    /// The waiter talks to the server. It answers questions at the same time; a wake-up would make it ask the server again.
    is_with_server: AtomicBool,
    /// Whether it was polled since it was last asked.
    is_present: AtomicBool,
}

impl SlotWaker {
    pub(super) fn wake(&self) {
        foreign::notify_one(&self.wake);
    }

    pub(super) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Asks the waiter for a sign.
    pub(super) fn ask(&self) {
        // Relaxed, here and below: nothing else is read on the strength of these flags, and `Notify` orders the wake-up.
        self.is_present.store(false, Ordering::Relaxed);
        if self.is_with_server.load(Ordering::Relaxed) {
            foreign::notify_one(&self.question);
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
        self.is_present.store(true, Ordering::Relaxed);
    }

    /// Answers questions while the waiter talks to the server. Never completes.
    pub(super) async fn answer(&self) -> Infallible {
        loop {
            self.question.notified().await;
            self.is_present.store(true, Ordering::Relaxed);
        }
    }
}

//! A flag that is set once. Setting it wakes all that wait for it.

use crate::foreign;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Notified, Notify};

/// A flag that is set once. It is part of what it belongs to, so it needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    waiters: Notify,
}

impl Flag {
    /// Sets the flag. Not under a mutex: a waker may run any code.
    pub(crate) fn set(&self) {
        // AcqRel, with the Acquire in `is_set`: a thread that finds the flag set finds all that was done before.
        if !self.is_set.swap(true, Ordering::AcqRel) {
            foreign::notify_waiters(&self.waiters);
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        // Acquire: pairs with `set`.
        self.is_set.load(Ordering::Acquire)
    }

    /// Completes when the flag is set.
    pub(crate) async fn wait(&self) {
        while !self.is_set() {
            self.changed().await;
        }
    }

    /// Wakes those that wait for a [change](Flag::changed), and does not set the flag. Not under a mutex.
    pub(crate) fn announce_change(&self) {
        foreign::notify_waiters(&self.waiters);
    }

    /// Completes when the flag is set or a change is announced, from this call on.
    pub(crate) fn next_change(&self) -> Notified<'_> {
        self.waiters.notified()
    }

    /// Completes when the flag is set, or when a change before that is announced.
    pub(crate) async fn changed(&self) {
        // Made before the check: from then on it receives `notify_waiters`, even if it was not polled yet.
        let changed = self.waiters.notified();
        if !self.is_set() {
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn flag_wakes_those_that_wait_and_those_that_come_later_do_not_wait() {
        let flag = Arc::new(Flag::default());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let flag = Arc::clone(&flag);
                tokio::spawn(async move { flag.wait().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!flag.is_set() && waiters.iter().all(|waiter| !waiter.is_finished()));
        flag.set();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        flag.set();
        flag.wait().await;
        assert!(flag.is_set());
    }

    #[tokio::test]
    async fn wait_that_was_polled_before_the_flag_was_set_ends_without_another_wake_up() {
        let flag = Flag::default();
        let mut wait = pin!(flag.wait());
        let first = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        flag.set();
        let second = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
        assert!(second.is_ready());
    }
}

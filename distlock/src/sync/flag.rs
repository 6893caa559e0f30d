//! A flag that is set once. Setting it wakes all that wait for it.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Change, Changes, OnceBox};

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    /// Whether anybody has ever waited. Most flags are set and dropped without that, and wake nobody.
    is_watched: AtomicBool,
    /// Made for the first one that waits: each hold has a flag.
    changes: OnceBox<Changes>,
}

impl Flag {
    /// Sets the flag. Not under a mutex: a waker may run any code.
    pub(crate) fn set(&self) {
        // Release, with the Acquire in `is_set`: a thread that finds the flag set finds all that was done before.
        self.is_set.store(true, Ordering::Release);
        self.announce_change();
    }

    pub(crate) fn is_set(&self) -> bool {
        // Acquire: pairs with `set`.
        self.is_set.load(Ordering::Acquire)
    }

    /// Completes when the flag is set.
    pub(crate) async fn wait(&self) {
        while !self.is_set() {
            // Not by `changed`, whose future would be in this one.
            let mut changed = self.next_change();
            if !self.is_set() {
                // By reference: a future that is moved would have two places here.
                (&mut changed).await;
            }
        }
    }

    /// Wakes those that wait for a [change](Flag::changed), and does not set the flag. Not under a mutex.
    pub(crate) fn announce_change(&self) {
        // Here and in `next_change`, `is_watched` is read and written in one step, so one of the two steps comes first. AcqRel:
        // the second one sees what was done before the first. So either this finds that somebody waits, or the waiter's look
        // finds the change.
        if self.is_watched.fetch_or(false, Ordering::AcqRel)
            && let Some(changes) = self.changes.get()
        {
            changes.announce();
        }
    }

    /// Completes when the flag is set or a change is announced, from this call on.
    pub(crate) fn next_change(&self) -> Change<'_> {
        // The future is made first. It completes at each change after that, even if it was not polled yet.
        let changed = self.changes.get_or_init(Box::default).next();
        self.is_watched.swap(true, Ordering::AcqRel);
        changed
    }

    /// Completes when the flag is set, or when a change before that is announced.
    pub(crate) async fn changed(&self) {
        let changed = self.next_change();
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

    use futures_util::FutureExt as _;

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

    #[tokio::test]
    async fn change_that_is_announced_before_the_first_poll_of_a_wait_ends_that_wait_alone() {
        let flag = Flag::default();
        let next_change = flag.next_change();
        flag.announce_change();
        assert!(next_change.now_or_never().is_some());
        assert!(flag.next_change().now_or_never().is_none());
        assert!(flag.changed().now_or_never().is_none() && !flag.is_set());
    }
}

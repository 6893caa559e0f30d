//! A [`Signal`] that one side changes and others watch.
//!
//! It does what tokio's `watch` channel does, in a quarter of its bytes: each waiter has one on each key.

use std::sync::Arc;

use super::signal::Signal;
use crate::sync::{Changes, Mutex};

/// Makes both sides.
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only the Redis backend uses it")
)]
pub fn channel(first: Signal) -> (Sender, Receiver) {
    let sender = Sender::new(first);
    let receiver = sender.subscribe();
    (sender, receiver)
}

/// All senders are gone: the signal never changes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Changes,
}

#[derive(Debug)]
struct State {
    signal: Signal,
    /// How many changes were announced. Those that a receiver has not seen may be at most 2^32 - 1.
    changes: u32,
    senders: u32,
}

/// Changes the signal.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// A sender without receivers.
    pub fn new(first: Signal) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                signal: first,
                changes: 0,
                senders: 1,
            }),
            changed: Changes::default(),
        }))
    }

    /// A receiver that has seen all changes until now.
    pub fn subscribe(&self) -> Receiver {
        let seen = self.0.state.lock().changes;
        Receiver {
            shared: Arc::clone(&self.0),
            seen,
        }
    }

    /// Changes the signal and wakes the receivers. Not under a mutex: a waker may run any code.
    pub fn send_modify(&self, modify: impl FnOnce(&mut Signal)) {
        self.send_if_modified(|signal| {
            modify(signal);
            true
        });
    }

    /// Changes the signal, and wakes the receivers if `modify` answers `true`. Not under a mutex: a waker may run any
    /// code.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut Signal) -> bool) {
        let is_announced = {
            let mut state = self.0.state.lock();
            let is_announced = modify(&mut state.signal);
            state.changes = state.changes.wrapping_add(u32::from(is_announced));
            is_announced
        };
        if is_announced {
            self.0.changed.announce();
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.0.state.lock();
            state.senders -= 1;
            state.senders == 0
        };
        // Nobody else has the signal: nobody waits for it.
        if is_last && Arc::strong_count(&self.0) > 1 {
            self.0.changed.announce();
        }
    }
}

/// Watches the signal.
#[derive(Clone, Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    seen: u32,
}

impl Receiver {
    /// The signal as it is now. Whether that is a change is not noted.
    pub fn get(&self) -> Signal {
        self.shared.state.lock().signal
    }

    /// Records all changes until now.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.state.lock().changes;
    }

    /// Completes at the next change, or at once if there was one since the last that this receiver has seen.
    ///
    /// # Errors
    /// If all senders are gone.
    pub fn changed(&mut self) -> impl Future<Output = Result<(), Closed>> {
        let before = self.seen;
        self.look_until(move |state| state.changes != before)
    }

    /// Completes as soon as the signal is `wanted`.
    ///
    /// # Errors
    /// If all senders are gone.
    pub fn wait_for(
        &mut self,
        wanted: impl Fn(Signal) -> bool,
    ) -> impl Future<Output = Result<(), Closed>> {
        self.look_until(move |state| wanted(state.signal))
    }

    async fn look_until(&mut self, is_there: impl Fn(&State) -> bool) -> Result<(), Closed> {
        loop {
            // The future is made before the look. It completes at each change after that, even if it was not polled yet.
            let mut changed = self.shared.changed.next();
            {
                let state = self.shared.state.lock();
                self.seen = state.changes;
                if is_there(&state) {
                    return Ok(());
                }
                if state.senders == 0 {
                    return Err(Closed);
                }
            }
            // By reference: a future that is moved would have two places here.
            (&mut changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const INACTIVE: Signal = Signal {
        active: false,
        version: 0,
        messages: 0,
    };

    async fn is_pending<T>(future: impl Future<Output = T>) -> bool {
        let mut future = pin!(future);
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn change_is_seen_once_and_by_each_receiver() {
        let (sender, mut one) = channel(INACTIVE);
        let mut other = one.clone();
        assert!(is_pending(one.changed()).await);
        sender.send_modify(|signal| signal.version += 1);
        assert_eq!(one.changed().await, Ok(()));
        assert!(is_pending(one.changed()).await);
        other.mark_unchanged();
        assert!(is_pending(other.changed()).await && other.get().version == 1);
        assert!(is_pending(sender.subscribe().changed()).await);
    }

    #[tokio::test]
    async fn change_that_is_not_announced_wakes_nobody() {
        let (sender, mut receiver) = channel(INACTIVE);
        sender.send_if_modified(|signal| {
            signal.messages += 1;
            false
        });
        assert!(is_pending(receiver.changed()).await && receiver.get().messages == 1);
    }

    #[tokio::test]
    async fn receivers_that_wait_are_woken_by_a_change_and_by_the_end_of_the_last_sender() {
        let (sender, mut receiver) = channel(INACTIVE);
        let second = sender.clone();
        let waits = tokio::spawn(async move {
            let active = receiver.wait_for(|signal| signal.active).await;
            (active, receiver.changed().await)
        });
        tokio::task::yield_now().await;
        sender.send_modify(|signal| signal.active = true);
        tokio::task::yield_now().await;
        drop(sender);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(second);
        assert_eq!(waits.await.unwrap(), (Ok(()), Err(Closed)));
    }

    #[tokio::test]
    async fn change_before_the_end_of_the_last_sender_counts() {
        let (sender, mut receiver) = channel(INACTIVE);
        sender.send_modify(|signal| signal.version += 1);
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(receiver.changed().await, Err(Closed));
    }
}

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

#[derive(Debug)]
struct Shared {
    signal: Mutex<Signal>,
    changed: Changes,
}

/// Changes the signal. The end of all senders changes nothing and wakes nobody.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// A sender without receivers.
    pub fn new(first: Signal) -> Self {
        Self(Arc::new(Shared {
            signal: Mutex::new(first),
            changed: Changes::default(),
        }))
    }

    /// A receiver that has seen all changes until now.
    pub fn subscribe(&self) -> Receiver {
        let mut receiver = Receiver {
            shared: Arc::clone(&self.0),
            seen: 0,
        };
        receiver.mark_unchanged();
        receiver
    }

    /// Changes the signal, and wakes the receivers if it has another version then. Not under a mutex: a waker may run any code.
    pub fn send_modify(&self, modify: impl FnOnce(&mut Signal)) {
        let is_announced = {
            let mut signal = self.0.signal.lock();
            let before = signal.version;
            modify(&mut signal);
            signal.version != before
        };
        if is_announced {
            self.0.changed.announce();
        }
    }
}

/// Watches the signal.
#[derive(Clone, Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    /// The last version that was seen.
    seen: u64,
}

impl Receiver {
    /// The signal as it is now. Whether that is a change is not noted.
    pub fn get(&self) -> Signal {
        *self.shared.signal.lock()
    }

    /// Records all changes until now.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.get().version;
    }

    /// Completes at the next change, or at once if there was one since the last that this receiver has seen.
    pub fn changed(&mut self) -> impl Future<Output = ()> {
        let before = self.seen;
        self.wait_for(move |signal| signal.version != before)
    }

    /// Completes as soon as the signal is `wanted`.
    pub async fn wait_for(&mut self, wanted: impl Fn(Signal) -> bool) {
        loop {
            // The future is made before the look. It completes at each change after that, even if it was not polled yet.
            let mut changed = self.shared.changed.next();
            let signal = self.get();
            self.seen = signal.version;
            if wanted(signal) {
                return;
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

    async fn is_pending(future: impl Future<Output = ()>) -> bool {
        let mut future = pin!(future);
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn change_is_seen_once_and_by_each_receiver() {
        let (sender, mut one) = channel(Signal::default());
        let mut other = one.clone();
        assert!(is_pending(one.changed()).await);
        sender.send_modify(|signal| signal.version += 1);
        one.changed().await;
        assert!(is_pending(one.changed()).await);
        other.mark_unchanged();
        assert!(is_pending(other.changed()).await && other.get().version == 1);
        assert!(is_pending(sender.subscribe().changed()).await);
    }

    #[tokio::test]
    async fn change_without_another_version_wakes_nobody() {
        let (sender, mut receiver) = channel(Signal::default());
        sender.send_modify(|signal| signal.messages += 1);
        assert!(is_pending(receiver.changed()).await && receiver.get().messages == 1);
    }

    #[tokio::test]
    async fn receiver_that_waits_is_woken_by_a_change_and_by_none_that_it_does_not_want() {
        let (sender, mut receiver) = channel(Signal::default());
        let waits = tokio::spawn(async move { receiver.wait_for(|signal| signal.active).await });
        for active in [false, true] {
            tokio::task::yield_now().await;
            assert!(!waits.is_finished());
            sender.send_modify(|signal| {
                signal.active = active;
                signal.version += 1;
            });
        }
        waits.await.unwrap();
    }
}

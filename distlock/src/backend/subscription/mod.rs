//! A subscription to a key's channel.

mod signal;
pub mod watched;

pub use self::signal::Signal;

/// A share in the subscription to a key's channel. The client unsubscribes some time after the last share is dropped.
pub struct Subscription {
    signal: watched::Receiver,
    _share: Box<dyn Send + Sync>,
}

impl Subscription {
    /// A share that follows `signal`, and drops `share` when it is dropped.
    pub fn new(signal: watched::Receiver, share: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            _share: Box::new(share),
        }
    }

    /// The signal, for a decorator that passes it on.
    #[cfg(feature = "test-util")]
    pub fn signal(&self) -> watched::Receiver {
        self.signal.clone()
    }

    /// Completes when the waiter should repeat its attempt: at the next change if the subscription was active at the
    /// last attempt, otherwise as soon as it is active, since messages may have been missed until then.
    pub(crate) async fn changed(&mut self, was_active: bool) {
        if was_active {
            self.signal.changed().await;
        } else {
            self.signal.wait_for(|signal| signal.active).await;
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state().active
    }

    pub(crate) fn state(&self) -> Signal {
        self.signal.get()
    }

    /// How many messages have arrived.
    pub(crate) fn messages(&self) -> i64 {
        i64::try_from(self.state().messages).unwrap_or(i64::MAX)
    }

    /// Makes [`changed`](Subscription::changed) ignore everything up to now.
    pub(crate) fn mark_seen(&mut self) {
        self.signal.mark_unchanged();
    }
}

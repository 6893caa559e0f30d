//! What a waiter learns from a key's channel.

use tokio::sync::watch;

/// What a waiter learns from a key's channel. Messages are hints, and many may show as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// The subscription stands: messages will come.
    pub active: bool,
    /// Moves with each message, and whenever the subscription begins to stand or falls.
    pub version: u64,
}

/// A share in the subscription to a key's channel; it ends with its last share.
pub struct Subscription {
    signal: watch::Receiver<Signal>,
    _share: Box<dyn Send + Sync>,
}

impl Subscription {
    /// A share that hears `signal`; `share` is dropped with it.
    pub fn new(signal: watch::Receiver<Signal>, share: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            _share: Box::new(share),
        }
    }

    /// What the subscription says, for who passes it on.
    #[cfg(feature = "test-util")]
    pub fn signal(&self) -> watch::Receiver<Signal> {
        self.signal.clone()
    }

    /// Completes when it makes sense to ask again: at news, or where the subscription did not stand, when it does.
    pub(crate) async fn changed(&mut self, was_active: bool) {
        if was_active {
            self.next_version().await;
        } else {
            self.activated().await;
        }
    }

    /// Completes when the subscription stands.
    async fn activated(&mut self) {
        if self.signal.wait_for(|signal| signal.active).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.signal.borrow().active
    }

    /// From here on, only what is new counts as news.
    pub(crate) fn mark_seen(&mut self) {
        self.signal.mark_unchanged();
    }

    /// Completes at news since the last mark: a message, or a change of the subscription itself.
    async fn next_version(&mut self) {
        if self.signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! Handles of faults: whether they happened, and how to take them back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Shared;
use super::connection::Caught;
use super::rules::{Hits, Rules};

/// A fault that was set. It stays when the handle is dropped.
#[derive(Debug)]
#[must_use = "a test must look whether its fault ever happened"]
pub struct Fault {
    id: u64,
    hits: Hits,
    shared: Arc<Shared>,
}

impl Fault {
    pub(super) fn new(id: u64, hits: Hits, shared: Arc<Shared>) -> Self {
        Self { id, hits, shared }
    }

    /// How often it had an effect.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Waits until it had an effect this many times.
    ///
    /// # Panics
    /// If that does not happen `within` the time.
    pub async fn reach(&self, hits: u64, within: Duration) {
        if timeout(within, self.hits.reach(hits)).await.is_err() {
            panic!(
                "a fault was hit {} times within {within:?}, not {hits}",
                self.hits()
            );
        }
    }

    /// Takes it back. What it has held up goes on; what it has cut stays cut.
    pub fn lift(&self) {
        self.shared.change(|rules: &mut Rules| rules.lift(self.id));
    }
}

/// A trap for a request to be kept back. Dropped before it has caught one, it catches none.
#[derive(Debug)]
#[must_use = "dropped, it catches nothing"]
pub struct Held {
    caught: oneshot::Receiver<Caught>,
}

impl Held {
    pub(super) fn new(caught: oneshot::Receiver<Caught>) -> Self {
        Self { caught }
    }

    /// Waits for the request. It is held from then on, until it is delivered or dropped.
    ///
    /// # Panics
    /// If none comes `within` the time, or the trap was taken back by [`super::Proxy::heal`].
    pub async fn caught(self, within: Duration) -> Caught {
        match timeout(within, self.caught).await {
            Ok(Ok(caught)) => caught,
            Ok(Err(_)) => panic!("the trap was taken back before it held a request"),
            Err(_) => panic!("no request to hold within {within:?}"),
        }
    }

    /// The request, if it has come. Otherwise the trap goes on waiting.
    ///
    /// # Errors
    /// The trap itself.
    pub fn try_caught(mut self) -> Result<Caught, Self> {
        self.caught.try_recv().map_err(|_| self)
    }
}

//! What the first connection of a client finds out about its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::driven::Driven;
use super::handshake;
use crate::backend::Fault;

/// What the first connection of a client finds out.
#[derive(Debug)]
pub(crate) struct FirstCheck {
    is_done: AtomicBool,
    /// How long the server may take for each answer.
    patience: Duration,
}

impl FirstCheck {
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            is_done: AtomicBool::new(false),
            patience,
        })
    }

    /// Finds out whether the server has all that locks need, unless that was done. A server that does not answer in time may
    /// still have it.
    pub(crate) async fn check(&self, server: &str, connection: &mut Driven) -> Result<(), Fault> {
        // Relaxed: two connections that are made at the same time may both ask.
        if self.is_done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let known = handshake::check_commands(server, connection);
        let was_told = match tokio::time::timeout(self.patience, known).await {
            Ok(answered) => answered?,
            Err(_) => false,
        };
        let warned = handshake::warn_of_eviction(server, connection);
        // Without an answer there is no warning. It is not needed for locks.
        let _in_time = tokio::time::timeout(self.patience, warned).await;
        self.is_done.store(was_told, Ordering::Relaxed);
        Ok(())
    }
}

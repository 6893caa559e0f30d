//! Mistakes with operations that travel together.

use std::sync::atomic::{AtomicU32, Ordering};

use distlock::test_util::{Attempt, Attempted, Backend, Fault, Released, Target};
use parking_lot::Mutex;
use scopeguard::defer;

/// What a client sends at once, and what its last attempt was answered.
#[derive(Debug, Default)]
pub(super) struct Batches {
    under_way: AtomicU32,
    last: Mutex<Option<Attempted>>,
}

impl Batches {
    /// Gives an attempt the answer of the one before it.
    pub(super) async fn answered_as_the_last_one(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let attempted = inner.attempt(attempt).await?;
        let last = self.last.lock().replace(attempted.clone());
        Ok(last.unwrap_or(attempted))
    }

    /// Reports an attempt as granted that comes while another operation is under way, and does not carry it out.
    pub(super) async fn attempt_if_first(
        &self,
        inner: &dyn Backend,
        attempt: &Attempt,
    ) -> Result<Attempted, Fault> {
        let Some(attempted) = self.if_first(inner.attempt(attempt)).await else {
            return Ok(Attempted::Granted { token: None });
        };
        attempted
    }

    /// Reports a release as done that comes while another operation is under way, and does not carry it out.
    pub(super) async fn release_if_first(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let Some(released) = self.if_first(inner.release(target)).await else {
            return Ok(Released::Freed { others: 0 });
        };
        released
    }

    async fn if_first<T>(&self, operation: impl Future<Output = T>) -> Option<T> {
        // Relaxed: only the count matters.
        let is_first = self.under_way.fetch_add(1, Ordering::Relaxed) == 0;
        defer!({
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        });
        if is_first {
            Some(operation.await)
        } else {
            None
        }
    }
}

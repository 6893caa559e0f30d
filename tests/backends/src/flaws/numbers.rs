//! Mistakes with numbers: what is sent again counts again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Owner;
use distlock::test_util::{Backend, Change, Fault, Released, Target, owner};
use parking_lot::Mutex;
use uuid::Uuid;

/// Whose release was sent before, and how many requests got a name of their own.
#[derive(Debug, Default)]
pub(super) struct Sent {
    released: Mutex<HashSet<Owner>>,
    requests: AtomicU64,
}

impl Sent {
    /// Sends a change as if it had not been sent before.
    pub(super) async fn adjust(
        &self,
        inner: &dyn Backend,
        target: &Target,
        change: Change,
    ) -> Result<i64, Fault> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut anew = target.clone();
        anew.owner = owner(Uuid::nil(), number);
        inner.adjust(&anew, change).await
    }

    /// Gives the permits back once more where that was asked for before.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let released = inner.release(target).await?;
        let given = released != Released::NotOurs;
        if given && !self.released.lock().insert(target.owner) {
            let permits = i32::try_from(target.permits).unwrap_or(i32::MAX);
            self.adjust(inner, target, Change::Add(permits)).await?;
        }
        Ok(released)
    }
}

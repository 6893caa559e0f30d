//! Mistakes with numbers: a request that is sent again takes effect again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Owner;
use distlock::test_util::{Backend, Change, Fault, Key, Released, SemaphoreChange, Target, owner};
use parking_lot::Mutex;
use uuid::Uuid;

/// What was sent before.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The owners that were released.
    released: Mutex<HashSet<Owner>>,
    /// The number of requests that were renamed.
    renamed: AtomicU64,
}

/// Changes a number, and has the server forget the request although it may be sent again.
pub(super) async fn adjust_and_forget(
    inner: &dyn Backend,
    key: &Key,
    request: Owner,
    change: Change,
) -> Result<i64, Fault> {
    let answer = inner.adjust(key, request, change).await;
    inner.answered(key, request);
    answer
}

/// Releases as if none of the owner's attempts could still arrive.
pub(super) async fn release_without_mark(
    inner: &dyn Backend,
    target: &Target,
) -> Result<Released, Fault> {
    let mut target = target.clone();
    target.in_doubt = false;
    inner.release(&target).await
}

impl Sent {
    /// Sends a change under a new request, so that the server cannot recognize a repeated one.
    pub(super) async fn adjust(
        &self,
        inner: &dyn Backend,
        key: &Key,
        change: Change,
    ) -> Result<i64, Fault> {
        // Relaxed: the number only has to be unique.
        let number = self.renamed.fetch_add(1, Ordering::Relaxed);
        let new_request = owner(Uuid::nil(), number);
        inner.adjust(key, new_request, change).await
    }

    /// Releases, and adds the permits once more if this owner was released before.
    // As of a plain semaphore: the others count by ids and by owners.
    pub(super) async fn release(
        &self,
        inner: &dyn Backend,
        target: &Target,
    ) -> Result<Released, Fault> {
        let released = inner.release(target).await?;
        if released != Released::NotOurs {
            self.released.lock().insert(target.owner);
        } else if self.released.lock().contains(&target.owner) {
            let permits = i32::try_from(target.permits).unwrap_or(i32::MAX);
            let again = SemaphoreChange::Add(permits).into();
            self.adjust(inner, &target.resource.key, again).await?;
        }
        Ok(released)
    }
}

//! Waits until nobody holds a key, without acquiring it: all waiters of a key are one for the server.
//!
//! A client watches each key once, from one task. The watch subscribes to the key's channel and looks at the key, as a waiter that
//! wants to acquire it does. A look counts for the waiters that came before it began: a key that was free before a caller asked
//! says nothing to that caller.

mod keys;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;

pub(crate) use self::keys::{FreeAnswer, FreeWaiter, FreeWatches, SeenHolder};
pub(crate) use self::watch::{Looked, look};
use super::Session;
use crate::clock::Tick;
use crate::resource::key::Resource;
use crate::sync::Unordered;

impl Session {
    /// Begins to wait until nobody holds a key. The resource names the key's data, as [`Kind::Reentrant`] or [`Kind::Write`].
    ///
    /// [`Kind::Reentrant`]: crate::resource::kind::Kind::Reentrant
    /// [`Kind::Write`]: crate::resource::kind::Kind::Write
    pub(crate) fn watch_until_free<'a>(
        self: &'a Arc<Self>,
        resource: &'a Resource,
        since: Tick,
        looks_once: bool,
    ) -> FreeWaiter<'a> {
        let waiter = self.free.join(resource, since, looks_once);
        self.start_tasks();
        waiter
    }
}

/// The task of one client that watches keys.
pub(super) async fn run(session: Arc<Session>) {
    let free = &session.free;
    let (mut new, mut watched) = (free.all(), HashSet::new());
    let mut under_way = Unordered::default();
    while !session.retirement.has_begun() {
        for resource in new {
            // A key whose last waiter has left and that has new ones may still be watched.
            if watched.insert(resource.clone()) {
                under_way.push(watch::until_nobody_waits(&session, resource));
            }
        }
        crate::sync::select! {
            () = free.wake.notified() => {}
            Some(ended) = under_way.next() => {
                watched.remove(&ended);
                // Somebody may have come after the watch had found nobody.
                new = if free.has(&ended) { vec![ended] } else { Vec::new() };
                continue;
            }
        }
        new = free.new_keys();
    }
}

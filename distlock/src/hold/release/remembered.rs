//! The releases of one client that were answered in the last seconds.
//!
//! A replica that takes over may not have heard of them, and a server that restarts may not have stored them. It then has
//! an owner again that nobody renews and nobody releases. So they are sent again when a connection stands anew.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::PendingRelease;
use crate::clock::Tick;
use crate::config::{MOST_RELEASES_REMEMBERED, RELEASES_REMEMBERED};

/// Answered releases, oldest first.
#[derive(Debug, Default)]
pub(in crate::hold) struct RememberedReleases(Mutex<VecDeque<Remembered>>);

#[derive(Debug)]
struct Remembered {
    pending: PendingRelease,
    /// The connection that it was sent over.
    epoch: u64,
    at: Tick,
}

impl RememberedReleases {
    /// Adds a release that was answered by `now` and was sent over connection `epoch`. Returns it if `current` is another
    /// connection: the release has to be sent again.
    ///
    /// Only a release drops those that are older: while nothing is answered, the last ones are kept.
    pub(in crate::hold) fn add(
        &self,
        pending: PendingRelease,
        epoch: u64,
        now: Tick,
        current: impl FnOnce() -> u64,
    ) -> Option<PendingRelease> {
        // A plain semaphore remembers each release by itself.
        if !pending.target().resource.kind.has_lease() {
            return None;
        }
        let mut releases = self.0.lock();
        // Under the mutex: a connection that stands anew after this finds the release here.
        if current() != epoch {
            return Some(pending);
        }
        while releases.len() >= MOST_RELEASES_REMEMBERED
            || releases
                .front()
                .is_some_and(|oldest| now.since(oldest.at) > RELEASES_REMEMBERED)
        {
            releases.pop_front();
        }
        let at = now;
        releases.push_back(Remembered { pending, epoch, at });
        None
    }

    /// Takes the releases that were sent over other connections than `epoch`, as far as the server may still have a hold
    /// of their owners at `now`.
    pub(in crate::hold) fn take_of_others(&self, epoch: u64, now: Tick) -> Vec<PendingRelease> {
        let mut releases = self.0.lock();
        let (others, same): (VecDeque<_>, _) =
            releases.drain(..).partition(|one| one.epoch != epoch);
        *releases = same;
        drop(releases);
        let pending = others.into_iter().map(|one| one.pending);
        pending.filter(|one| one.until > now).collect()
    }
}

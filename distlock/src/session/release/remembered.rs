//! The releases of one client that were answered in the last seconds, and the holds that were found to be gone.
//!
//! A replica that takes over may not have heard of them, and a server that restarts may not have stored them. It then has
//! an owner again that nobody renews and nobody releases. So a release is sent when a connection is re-established.

use std::collections::VecDeque;

use super::pending::PendingRelease;
use crate::clock::Tick;
use crate::config::{MOST_RELEASES_REMEMBERED, RELEASES_REMEMBERED};
use crate::mutex::Mutex;
use crate::resource::key::Key;

/// Answered releases, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RememberedReleases(Mutex<VecDeque<Remembered>>);

#[derive(Debug)]
struct Remembered {
    pending: PendingRelease,
    /// The connection that it was sent over, or over which the hold was found to be gone.
    epoch: u64,
    at: Tick,
}

impl RememberedReleases {
    /// Adds a release that was answered by `now` and was sent over connection `epoch`. Returns it if `current`, the present
    /// connection for its key, is another one: the release has to be sent again.
    ///
    /// Only a release drops those that are older: while nothing is answered, the last ones are kept.
    pub(crate) fn add(
        &self,
        pending: PendingRelease,
        epoch: u64,
        now: Tick,
        current: impl FnOnce(&Key) -> u64,
    ) -> Option<PendingRelease> {
        // A rule of tests/model: release_of_an_earlier_connection_is_said_again.
        // A plain semaphore remembers each release by itself.
        if !pending.target().resource.kind.has_lease() {
            return None;
        }
        let mut releases = self.0.lock();
        // Under the mutex: a connection that is re-established after this finds the release here.
        if current(&pending.target().resource.key) != epoch {
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

    /// Takes the releases that were sent over other connections than the `current` one for their key, as far as the server
    /// may still have a hold of their owners at `now`.
    pub(crate) fn take_of_others(
        &self,
        current: impl Fn(&Key) -> u64,
        now: Tick,
    ) -> Vec<PendingRelease> {
        let is_other = |one: &Remembered| one.epoch != current(&one.pending.target().resource.key);
        let mut releases = self.0.lock();
        let (others, same): (VecDeque<_>, _) = releases.drain(..).partition(is_other);
        *releases = same;
        drop(releases);
        let pending = others.into_iter().map(|one| one.pending);
        pending.filter(|one| one.until > now).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::backend::Target;
    use crate::resource::key::{Key, Resource};
    use crate::resource::kind::Kind;
    use crate::resource::owner::Owner;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    /// A release of an owner of which the server may have something until `until`.
    fn release(until: Tick) -> PendingRelease {
        let resource = Resource {
            kind: Kind::Reentrant,
            key: Key::new("", "order:42").unwrap(),
        };
        PendingRelease::of_waiter(Target::of(&resource, Owner::new(Uuid::nil(), 1)), until)
    }

    #[test]
    fn releases_of_the_last_seconds_are_repeated_after_a_reconnect_while_they_may_matter() {
        let releases = RememberedReleases::default();
        let last = Tick::default().after(RELEASES_REMEMBERED);
        for (until, now) in [(60_000, 0), (60_000, 1), (5_500, 1), (60_000, 2)] {
            assert!(
                releases
                    .add(release(at(until)), 1, at(now), |_| 1)
                    .is_none()
            );
        }
        // Of those that are older than that the first one goes.
        let newest = last.after(std::time::Duration::from_millis(1));
        assert!(
            releases
                .add(release(at(60_000)), 2, newest, |_| 2)
                .is_none()
        );
        assert_eq!(releases.0.lock().len(), 4);
        // Sent over an earlier connection than the present one.
        assert!(
            releases
                .add(release(at(60_000)), 1, newest, |_| 2)
                .is_some()
        );
        assert_eq!(releases.take_of_others(|_| 2, at(5_500)).len(), 2);
        assert_eq!(releases.0.lock().len(), 1);
    }

    #[test]
    fn releases_that_are_remembered_are_not_too_many() {
        let releases = RememberedReleases::default();
        for _ in 0..MOST_RELEASES_REMEMBERED + 2 {
            assert!(releases.add(release(at(60_000)), 1, at(0), |_| 1).is_none());
        }
        assert_eq!(releases.0.lock().len(), MOST_RELEASES_REMEMBERED);
    }
}

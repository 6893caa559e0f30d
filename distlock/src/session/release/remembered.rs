//! The releases of one client that were answered in the last seconds, and the holds that were found to be gone.
//!
//! A replica that takes over may not have heard of them, and a server that restarts may not have stored them. It then has
//! an owner again that nobody renews and nobody releases. So a release is sent when a connection is re-established.

use std::collections::VecDeque;

use super::pending::PendingRelease;
use crate::clock::Tick;
use crate::config::{MOST_RELEASES_REMEMBERED, RELEASES_REMEMBERED};
use crate::resource::key::Key;
use crate::sync::Mutex;

/// Answered releases.
#[derive(Debug, Default)]
pub(crate) struct RememberedReleases(Mutex<Releases>);

#[derive(Debug, Default)]
struct Releases {
    number: usize,
    by_server: Vec<OfServer>,
}

/// The releases that one server has answered, and the holds that it did not have any more, oldest first.
#[derive(Debug)]
struct OfServer {
    server: u32,
    releases: VecDeque<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    pending: PendingRelease,
    /// The connection that it was sent over, or over which the hold was found to be gone.
    epoch: u64,
    at: Tick,
}

impl Remembered {
    fn is_of_present(&self, current: &impl Fn(&Key) -> u64) -> bool {
        self.epoch == current(&self.pending.target.resource.key)
    }
}

impl Releases {
    fn add(&mut self, server: u32, one: Remembered, current: &impl Fn(&Key) -> u64) {
        let known = self.by_server.iter().position(|of| of.server == server);
        let at = known.unwrap_or_else(|| {
            let releases = VecDeque::new();
            self.by_server.push(OfServer { server, releases });
            self.by_server.len() - 1
        });
        let releases = &mut self.by_server[at].releases;
        // A rule of tests/model: answer_of_one_connection_forgets_no_releases_of_others.
        while releases.front().is_some_and(|oldest| {
            one.at.since(oldest.at) > RELEASES_REMEMBERED && oldest.is_of_present(current)
        }) {
            releases.pop_front();
            self.number -= 1;
        }
        releases.push_back(one);
        self.number += 1;
        if self.number > MOST_RELEASES_REMEMBERED {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let queues = self.by_server.iter_mut().map(|of| &mut of.releases);
        let filled = queues.filter(|releases| !releases.is_empty());
        if let Some(releases) = filled.min_by_key(|releases| releases.front().map(|one| one.at)) {
            releases.pop_front();
            self.number -= 1;
        }
    }
}

impl RememberedReleases {
    /// Adds a release that `server` answered by `now` and that was sent over connection `epoch`. Returns it if `current`, the
    /// present connection for its key, is another one: the release has to be sent again.
    ///
    /// Only a release of the same server drops those that are older. A server that is away answers nothing, so its last ones are
    /// kept until it is back, whatever other servers answer. Once it is back, they are kept until they are taken.
    pub(crate) fn add(
        &self,
        pending: PendingRelease,
        server: u32,
        epoch: u64,
        now: Tick,
        current: impl Fn(&Key) -> u64,
    ) -> Option<PendingRelease> {
        // A rule of tests/model: release_of_an_earlier_connection_is_said_again.
        // A plain semaphore remembers each release separately.
        if !pending.target.resource.kind.has_lease() {
            return None;
        }
        let mut releases = self.0.lock();
        // Under the mutex: a connection that is re-established after this finds the release here.
        let at = now;
        let one = Remembered { pending, epoch, at };
        if !one.is_of_present(&current) {
            // Another connection was made while the answer came. Whether `reconnected` had looked here before is not known.
            return Some(one.pending);
        }
        releases.add(server, one, &current);
        None
    }

    /// Takes the releases that were sent over other connections than the `current` one for their key, as far as the server
    /// may still have a hold of their owners at `now`.
    pub(crate) fn take_of_others(
        &self,
        current: impl Fn(&Key) -> u64,
        now: Tick,
    ) -> Vec<PendingRelease> {
        let mut taken = VecDeque::new();
        let mut releases = self.0.lock();
        for of in &mut releases.by_server {
            let is_of_present = |one: &Remembered| one.is_of_present(&current);
            let (same, others): (VecDeque<_>, _) = of.releases.drain(..).partition(is_of_present);
            of.releases = same;
            taken.extend::<VecDeque<_>>(others);
        }
        // Servers of a cluster come and go.
        releases.by_server.retain(|of| !of.releases.is_empty());
        releases.number -= taken.len();
        // Others need the mutex. What follows uses the taken releases alone.
        drop(releases);
        let pending = taken.into_iter().map(|one| one.pending);
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
                    .add(release(at(until)), 1, 1, at(now), |_| 1)
                    .is_none()
            );
        }
        // Of those that are older than that the first one goes.
        let newest = last.after(std::time::Duration::from_millis(1));
        assert!(
            releases
                .add(release(at(60_000)), 1, 1, newest, |_| 1)
                .is_none()
        );
        assert_eq!(releases.0.lock().number, 4);
        // Sent over an earlier connection than the present one.
        assert!(
            releases
                .add(release(at(60_000)), 1, 1, newest, |_| 2)
                .is_some()
        );
        assert_eq!(releases.take_of_others(|_| 1, at(5_500)).len(), 0);
        assert_eq!(releases.take_of_others(|_| 2, at(5_500)).len(), 3);
        assert_eq!(releases.0.lock().number, 0);
    }

    #[test]
    fn releases_of_a_server_that_is_away_are_kept_while_another_one_answers() {
        let releases = RememberedReleases::default();
        let long_after = Tick::default().after(RELEASES_REMEMBERED * 3);
        // No connection to a node of a cluster has replaced another one yet, so all have the number of the map.
        for (server, now) in [(1, at(0)), (2, at(0)), (2, long_after)] {
            let added = releases.add(release(at(60_000)), server, 1, now, |_| 1);
            assert!(added.is_none());
        }
        assert_eq!(releases.0.lock().number, 2, "the older one of 2 has gone");
        // The first server is back.
        assert_eq!(releases.take_of_others(|_| 3, long_after).len(), 2);
    }

    #[test]
    fn releases_are_kept_that_are_to_be_said_again_over_the_connection_that_answers() {
        let releases = RememberedReleases::default();
        let long_after = Tick::default().after(RELEASES_REMEMBERED * 3);
        for (epoch, now) in [(1, at(0)), (2, long_after)] {
            let added = releases.add(release(at(60_000)), 1, epoch, now, |_| epoch);
            assert!(added.is_none());
        }
        assert_eq!(releases.take_of_others(|_| 2, long_after).len(), 1);
    }

    #[test]
    fn releases_that_are_remembered_are_not_too_many() {
        let releases = RememberedReleases::default();
        for _ in 0..MOST_RELEASES_REMEMBERED + 2 {
            assert!(
                releases
                    .add(release(at(60_000)), 1, 1, at(0), |_| 1)
                    .is_none()
            );
        }
        // The oldest ones go, whatever server has answered them.
        let newest = at(1);
        for _ in 0..3 {
            assert!(
                releases
                    .add(release(at(60_000)), 2, 1, newest, |_| 1)
                    .is_none()
            );
        }
        assert_eq!(releases.0.lock().number, MOST_RELEASES_REMEMBERED);
        let of_first = &releases.0.lock().by_server[0].releases;
        assert_eq!(of_first.len(), MOST_RELEASES_REMEMBERED - 3);
    }
}

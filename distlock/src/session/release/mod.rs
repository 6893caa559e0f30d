//! How a hold ends, and how the server learns of it.
//!
//! | what happens | the way |
//! | --- | --- |
//! | `Guard::release` | [`stop`](Session::stop) ends the renewals, and [`Release::confirm`] sends the release: its caller waits |
//! | the last guard is dropped | [`release_dropped`](Session::release_dropped): the releaser's task calls `stop`, and sends the release. Until then the next acquisition may take the hold back |
//! | a guard ends after the loss | [`stop_lost`](Session::stop_lost): the loss is declared, if nobody did before |
//! | an attempt or a wait is given up | [`release_later`](Session::release_later): the releaser withdraws the owner |
//! | the lease is over, or the server does not have the hold | [`lose`](Session::lose): its watchers are woken, and what the server may still have is released |
//! | a release finds that the hold is gone | [`found_lost`](Session::found_lost) |
//! | a connection is replaced | [`remember`](Session::remember): a release that was answered is repeated, because a copy of the server may have the hold again |
//!
//! A release that is answered or given up ends in [`freed`](Session::freed), and a loss in the hold's own flag. Both wake those that
//! wait for the hold. A release is sent again until it is answered, for at most `unavailable_after` or until the lease ends.

mod confirm;
mod detached;
mod ending;
mod in_flight;
mod pending;
pub(crate) mod releaser;
mod remembered;
mod send;
mod several;
mod tries;

use std::sync::Arc;

use scopeguard::defer;

pub(crate) use self::confirm::Release;
pub(crate) use self::ending::Ending;
pub(crate) use self::pending::PendingRelease;
pub(crate) use self::releaser::Releaser;
pub(crate) use self::several::release_several;
use super::Session;
use crate::clock::Tick;
use crate::error::Loss;
use crate::hold::{Hold, Lease};
use crate::resource::key::Key;
use crate::telemetry;

/// The end of a hold.
impl Session {
    /// Ends the renewals of a hold that has no guard. Returns the release that has to be sent to the server.
    ///
    /// # Errors
    /// The loss, if the hold was lost before.
    pub(crate) fn stop(self: &Arc<Self>, hold: &Arc<Hold>, now: Tick) -> Result<Release, Loss> {
        match hold.stop_renewals(now) {
            Ok(at_release) => {
                // Made first: whatever happens from now on, its drop has the hold released.
                let release = Release::new(self, hold, now, at_release);
                self.unwatch(hold);
                Ok(release)
            }
            Err(loss) => {
                self.stop_lost(hold, loss, true);
                Err(loss)
            }
        }
    }

    /// A guard has ended of a hold that is lost: the loss is declared, if nobody did before. `last`: no guard is left.
    pub(crate) fn stop_lost(self: &Arc<Self>, hold: &Hold, loss: Loss, last: bool) {
        // Last, and also if a subscriber of the log or the metrics panic: the next waiter asks the server after that.
        defer! {
            if last {
                self.freed(hold, None);
            }
        }
        self.lose(hold, loss, self.backend.epoch(&hold.resource.key));
    }

    /// Records that a hold is over. `others`: how many other clients heard of it, if the server said so.
    pub(crate) fn freed(&self, hold: &Hold, others: Option<u32>) {
        match self.callbacks() {
            Some(registry) => registry.freed(hold, others),
            // A release that is never answered does not keep a client alive whose handles are all dropped.
            None => hold.over.set(),
        }
    }
}

/// Releases in the background.
///
/// The release of a dropped guard is not sent at once: the hold waits for the releaser's task. Until that task begins the
/// release, the next acquisition of the same client may take the hold back, as if it had been handed over. The flag that
/// decides between the two is in the hold, under its mutex, so only one of them gets the hold.
impl Session {
    /// Has the releaser's task release a hold that [waits for its release](Hold::wait_for_release), unless it was taken back
    /// by then.
    pub(crate) fn release_dropped(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.releaser.enqueue_dropped(hold);
        self.start_tasks();
    }

    /// Ends an owner in the background. The release is retried until it is confirmed, or until the owner's lease has
    /// ended.
    pub(crate) fn release_later(self: &Arc<Self>, pending: PendingRelease) {
        // What a former identity had is left to another process, or to the leases.
        if self.identity.is_given_up() {
            return;
        }
        self.releaser.add(pending);
        self.releaser.wake();
        self.start_tasks();
    }

    /// Keeps a release that was sent over connection `epoch` or a later one, and was answered. If an attempt may be carried out late,
    /// the releaser repeats it.
    fn keep_answered(self: &Arc<Self>, pending: PendingRelease, epoch: u64) {
        let current = self.backend.epoch(&pending.target.resource.key);
        if pending.may_come_late(current) {
            self.release_later(pending);
        } else {
            self.remember(pending, epoch);
        }
    }

    /// Remembers a release that was answered, or a hold that was found to be gone. The command was sent over connection
    /// `epoch` or a later one.
    fn remember(self: &Arc<Self>, pending: PendingRelease, epoch: u64) {
        // A server in memory has no copy that could bring the hold back.
        if !self.backend.has_connection() {
            return;
        }
        let current = |key: &Key| self.backend.epoch(key);
        let server = self.backend.home(&pending.target.resource.key).server;
        let remembered = &self.releaser.remembered;
        let replaced = remembered.add(pending, server, epoch, self.now(), current);
        if let Some(pending) = replaced {
            self.release_later(pending);
        }
    }
}

/// The loss of a hold.
impl Session {
    /// Declares a hold lost, once: logs it, releases what the server may still have of it, and wakes its watchers. The loss was
    /// found over connection `epoch`.
    pub(super) fn lose(self: &Arc<Self>, hold: &Hold, loss: Loss, epoch: u64) {
        let _ending = Ending::new(self);
        // Somebody else has declared the loss, or has released the hold.
        if !self.watchdog.unwatch(hold.number()) {
            return;
        }
        // Also if a subscriber of the log or the metrics panic: nobody else does it, since the hold is not watched any more.
        defer! { hold.over.set(); }
        defer! { self.clean_up(hold, loss, epoch); }
        self.tell_lost(hold, loss);
        if loss == Loss::Gone {
            telemetry::ended_before_the_loss(
                &hold.resource.key,
                hold.owner(),
                hold.lease(|lease| lease.verification.unconfirmed()),
            );
        }
    }

    /// Tells of a hold that is lost, once it is not watched any more.
    pub(super) fn tell_lost(&self, hold: &Hold, loss: Loss) {
        let is_lock_lost = hold.loses_lock();
        if is_lock_lost {
            self.note_loss(hold, loss);
        }
        self.no_longer_watched(hold);
        if is_lock_lost {
            tell_lock_lost(hold, loss);
        } else {
            telemetry::part_lost(&hold.resource, hold.owner(), loss);
        }
        if !hold.is_counted() {
            hold.meter.held(hold.latest_guard().held_for(self.now()));
        }
    }

    /// The server does not have the hold that was to be released, and no loss was announced.
    fn found_lost(&self, hold: &Hold) {
        if !hold.loses_lock() {
            telemetry::part_lost(&hold.resource, hold.owner(), Loss::Gone);
            return;
        }
        self.note_loss(hold, Loss::Gone);
        telemetry::found_lost(
            hold.lock_type(),
            &hold.resource.key,
            hold.owner(),
            hold.latest_guard().call_site,
        );
        hold.count_loss(Loss::Gone);
    }

    /// Tells that a Redlock is lost by the clock. `part`: one of its parts that is over.
    pub(crate) fn tell_quorum_lost(&self, part: &Hold, loss: Loss) {
        self.note_loss(part, loss);
        tell_lock_lost(part, loss);
    }

    /// Keeps a loss for snapshots. Called before it is counted and logged: the metrics and the log may panic.
    fn note_loss(&self, hold: &Hold, loss: Loss) {
        self.losses.note(hold, loss, self.now());
    }

    /// Releases what the server may have, or may have again, of a hold that was lost.
    fn clean_up(self: &Arc<Self>, hold: &Hold, loss: Loss, epoch: u64) {
        // A rule of tests/model: holds_that_are_gone_are_remembered.
        // A hold that the server no longer has is released too if an earlier attempt of its owner may still be carried
        // out, or if the server may still have other permits of the owner.
        if loss != Loss::Gone || hold.in_doubt().is_some() || hold.permits > 1 {
            let pending = PendingRelease::of_hold(hold, hold.at_release());
            // A hold that has ended by the clock counts as ended before its lease ends, by the margin of the client.
            self.release_later(match loss {
                Loss::Expired => pending.not_before(hold.lease(Lease::server_end)),
                _ => pending,
            });
        } else {
            // A copy of the server that takes over later may have the hold again.
            self.remember(PendingRelease::of_gone(hold), epoch);
        }
    }
}

/// Logs and counts that the lock of a hold is lost.
fn tell_lock_lost(hold: &Hold, loss: Loss) {
    telemetry::lost(
        hold.lock_type(),
        &hold.resource.key,
        hold.owner(),
        loss,
        hold.latest_guard().call_site,
    );
    hold.count_loss(loss);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::poll_immediate;
    use tokio::time::{advance, sleep};

    use crate::error::{Error, Loss};
    use crate::hold::Lease;
    use crate::{Client, Guard};

    const LEASE: Duration = Duration::from_secs(10);

    /// A guard with a `max_hold` of one lease, whose hold was renewed beyond that for a nested guard.
    async fn limited(client: &Client) -> Guard {
        let lock = client.lock("order:42");
        let guard = lock.acquire().max_hold(LEASE).await.unwrap();
        let nested = lock.acquire().run(sleep(LEASE / 10));
        guard.scope(nested).await.unwrap().unwrap();
        let watchdog = &client.registry().session.watchdog;
        let hold = watchdog.find(guard.owner().number()).unwrap();
        assert!(hold.lease(Lease::deadline) > client.registry().session.now().after(LEASE));
        guard
    }

    /// Lets time pass. No task runs.
    async fn pass_for_this_task(time: Duration) {
        assert!(poll_immediate(advance(time)).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn loss_that_a_guard_finds_just_before_the_watchdog_is_told_and_its_release_sent() {
        let client = Client::in_memory();
        let session = &client.registry().session;
        let guard = client.lock("order:42").acquire().lease(LEASE).await;
        let owner = guard.as_ref().unwrap().owner().number();
        let hold = session.watchdog.find(owner).unwrap();
        let deadline = session.now().after(LEASE);
        // What the end of the last guard does at the deadline, in two steps. The watchdog looks in between.
        let loss = hold.stop_renewals(deadline).err().unwrap();
        sleep(LEASE * 2).await;
        session.stop_lost(&hold, loss, true);
        assert_eq!(session.losses.all().len(), 1);
        assert_eq!(session.releaser.pending(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_a_max_hold_is_told_if_a_guard_finds_it_first_and_the_lease_goes_on() {
        let client = Client::in_memory();
        let session = &client.registry().session;
        let guard = limited(&client).await;
        pass_for_this_task(LEASE).await;
        let error = guard.release().await.unwrap_err();
        let Error::Lost { reason, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(reason, Loss::HeldTooLong);
        let losses = session.losses.all();
        assert_eq!(losses.len(), 1);
        assert_eq!(losses[0].loss, Loss::HeldTooLong);
    }

    #[tokio::test(start_paused = true)]
    async fn loss_is_told_by_the_first_guard_that_finds_it_also_if_others_are_left() {
        let client = Client::in_memory();
        let session = &client.registry().session;
        let guard = limited(&client).await;
        let other = guard.reenter().unwrap();
        pass_for_this_task(LEASE).await;
        drop(other);
        assert_eq!(session.losses.all().len(), 1);
        drop(guard);
        sleep(LEASE).await;
        assert_eq!(session.losses.all().len(), 1);
    }
}

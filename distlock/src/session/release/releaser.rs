//! Ends owners in the background: those of dropped guards, of lost holds, and of acquisitions of unknown outcome.
//!
//! A release states that the owner holds nothing. It is therefore always safe to send it, and to send it again.
//!
//! # Invariants
//! 1. A pending release is kept until it is confirmed, or until the server can have no copy of the hold any more.
//! 2. An attempt of unknown outcome may lie in the buffers of a dead connection and be carried out after the release. Unless
//!    both went over one connection, which keeps their order, the release is repeated until the attempt's lease is over.
//!    A server that hung carries the attempt out when it goes on, with a full lease from then. So if no release was
//!    answered by the end of the lease, it is sent again as soon as another connection stands, and repeated for one
//!    response timeout.
//! 3. A release that is in flight when its task ends with the runtime goes back into the list.
//! 4. Pending releases keep a client without handles alive for at most one lease of the watchdog. A release that comes while the
//!    task of such a client ends has the task started again.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use scopeguard::{defer, guard};
use tokio::sync::{Notify, Semaphore};

use super::confirm::{Release, noting};
use super::ending::Endings;
use super::pending::{PendingRelease, ReleaseOutcome};
use super::remembered::RememberedReleases;
use crate::backend::{Fault, Released, Target};
use crate::clock::Tick;
use crate::config::{COPIED_MUTEX, RELEASES_AT_ONCE};
use crate::foreign;
use crate::hold::Hold;
use crate::mutex::Mutex;
use crate::session::per_server::PerServer;
use crate::session::{Retry, Session};
use crate::telemetry::{self, CountedRelease};

/// The pending releases of one client.
#[derive(Debug)]
pub(crate) struct Releaser {
    list: Mutex<List>,
    wake: Notify,
    done: Notify,
    /// Limits how many are sent at once to each server: a thousand guards that are dropped together must not time each other
    /// out.
    permits: PerServer<Semaphore>,
    /// The holds that are being ended by the code that had them.
    pub(super) endings: Endings,
    pub(crate) remembered: RememberedReleases,
}

impl Default for Releaser {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            wake: Notify::new(),
            done: Notify::new(),
            permits: PerServer::new(|| Semaphore::new(RELEASES_AT_ONCE)),
            endings: Endings::default(),
            remembered: RememberedReleases::default(),
        }
    }
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<PendingRelease>,
    /// The holds whose last guard was dropped. One that was taken back is still here, and may be here several times.
    dropped: VecDeque<Arc<Hold>>,
    /// How many were not answered yet: those that wait, those in flight, and the dropped holds.
    open: usize,
}

impl Releaser {
    /// Puts a release into the list. The caller then has the task [look](Releaser::wake).
    pub(crate) fn add(&self, pending: PendingRelease) {
        // Also if the metrics panic.
        let mut pending = guard(pending, |pending| {
            let mut list = self.list.lock();
            list.open += usize::from(!pending.answered);
            list.waiting.push_back(pending);
        });
        if !pending.answered {
            pending.counted = Some(CountedRelease::new());
        }
    }

    pub(super) fn enqueue_dropped(&self, hold: &Arc<Hold>) {
        {
            let mut list = self.list.lock();
            list.open += 1;
            list.dropped.push_back(Arc::clone(hold));
        }
        self.wake();
    }

    pub(crate) fn open(&self) -> usize {
        self.list.lock().open
    }

    /// Whether the task has anything to do.
    pub(crate) fn has_work(&self) -> bool {
        let list = self.list.lock();
        list.open > 0 || !list.waiting.is_empty()
    }

    /// Completes when `is_done` says so. It is asked again after each end of a release.
    pub(crate) async fn until(&self, is_done: impl Fn() -> bool) {
        loop {
            // Made before the check: from then on it receives `notify_waiters`, even if it was not polled yet.
            let done = self.done.notified();
            if is_done() {
                return;
            }
            done.await;
        }
    }

    /// Has `until` ask again.
    pub(crate) fn ask_again(&self) {
        foreign::notify_waiters(&self.done);
    }

    /// How many holds are being ended by the code that had them.
    pub(crate) fn ending(&self) -> usize {
        self.endings.number()
    }

    pub(crate) fn wake(&self) {
        foreign::notify_own_task(&self.wake);
    }

    fn take(&self) -> VecDeque<PendingRelease> {
        std::mem::take(&mut self.list.lock().waiting)
    }

    /// Begins the releases of the dropped holds that were not taken back.
    fn begin_dropped(&self, session: &Arc<Session>) {
        loop {
            let Some(hold) = self.list.lock().dropped.pop_front() else {
                return;
            };
            let _counted = Counted(self);
            let release = session.begin_release(&hold);
            if let Some(pending) = release.and_then(Release::into_pending) {
                self.add(pending);
            }
        }
    }

    /// Forgets all releases: they are left to another process, or to the leases.
    pub(crate) fn abandon(&self) {
        if let Some(mut list) = self.list.try_lock_for(COPIED_MUTEX) {
            let abandoned = std::mem::take(&mut *list);
            drop(list);
            drop(abandoned);
        }
        foreign::notify_waiters(&self.done);
    }

    fn one_answered(&self) {
        let mut list = self.list.lock();
        // Those that were abandoned are not counted any more.
        list.open = list.open.saturating_sub(1);
        drop(list);
        foreign::notify_waiters(&self.done);
    }
}

/// A dropped hold that the task begins to release. It counts until its release is in the list, also if a waker of a user panics
/// on the way.
struct Counted<'a>(&'a Releaser);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.one_answered();
    }
}

/// A release that the task is sending. Dropping it puts the release back into the list (invariant 3).
struct InFlight {
    session: Arc<Session>,
    pending: Option<PendingRelease>,
}

impl InFlight {
    /// The number of the server that it goes to.
    fn server(&self, session: &Session) -> u32 {
        let key = self.pending.as_ref().map(|one| &one.target.resource.key);
        key.map_or(0, |key| session.backend.home(key).server)
    }

    /// Returns whether the release was neither answered nor given up before.
    fn settle(&mut self, settled: ReleaseOutcome) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        let (is_first, releaser) = (!pending.answered, &self.session.releaser);
        // Also if a waker that the end of the hold wakes panics.
        defer! {
            if is_first {
                releaser.one_answered();
            }
        }
        pending.settle(&self.session, settled)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.session.releaser.list.lock().waiting.push_back(pending);
        }
    }
}

/// The releaser task of one client.
pub(crate) async fn run(session: Arc<Session>) {
    let releaser = &session.releaser;
    let mut under_way = FuturesUnordered::new();
    // Peeked at each time before anything is sent.
    while session.identity.is_valid() {
        releaser.begin_dropped(&session);
        for pending in releaser.take() {
            under_way.push(end_owner(InFlight {
                session: Arc::clone(&session),
                pending: Some(pending),
            }));
        }
        if session.is_retired() && releaser.open() == 0 && under_way.is_empty() {
            #[cfg(test)]
            tests::at_the_end(&session);
            return;
        }
        let last_moment = session.last_moment();
        tokio::select! {
            () = releaser.wake.notified() => {}
            () = session.clock.sleep_until(last_moment) => return,
            Some(()) = under_way.next() => {}
        }
    }
}

/// How the tries to send a release ended.
enum Ending {
    /// The last answer came to a release that was sent over this connection, or over a later one.
    Answered(u64),
    /// The server refused the release for good.
    Refused,
    /// No answer came until the server could have no copy of the hold any more.
    Unanswered,
}

/// Sends a release until nothing can be left of its owner in the server.
async fn end_owner(mut in_flight: InFlight) {
    let session = Arc::clone(&in_flight.session);
    let mut failed_over = None;
    loop {
        let ending = retry_until_confirmed(&mut in_flight).await;
        let Some(pending) = &mut in_flight.pending else {
            return;
        };
        match (ending, pending.in_doubt_over()) {
            // An attempt may lie in the sockets of a server that hangs.
            (Ending::Unanswered, Some(sent_over)) => {
                let failed = failed_over.unwrap_or(sent_over);
                let key = pending.target().resource.key.clone();
                failed_over = Some(session.epoch_after(&key, failed).await);
                // The server goes on, and takes a moment until it has read everything.
                pending.until = session.now().after(session.config.response_timeout);
            }
            (ending, _) => {
                // Taken out, so that the drop does not put it back into the list.
                let pending = in_flight.pending.take();
                if let (Some(pending), Ending::Answered(epoch)) = (pending, ending) {
                    session.remember(pending, epoch);
                }
                return;
            }
        }
    }
}

/// The tries to send one release.
struct Tries {
    session: Arc<Session>,
    retry: Retry,
    was_denied: bool,
    /// What they have come to so far.
    ending: Ending,
}

/// One try, which was answered or has failed.
struct Try {
    target: Target,
    /// How many guards have handed the hold over since the server confirmed it.
    unconfirmed: u32,
    sent_over: u64,
    /// Whether an earlier try may have been carried out, also one of the caller, who did not wait for its answer.
    may_be_done: bool,
    outcome: Result<Released, Fault>,
}

/// Sends a release until it is confirmed for good, or until the server can have no copy of the hold any more.
async fn retry_until_confirmed(in_flight: &mut InFlight) -> Ending {
    let session = Arc::clone(&in_flight.session);
    let mut tries = Tries {
        retry: Retry::new(&session, session.now()),
        session,
        was_denied: false,
        ending: Ending::Unanswered,
    };
    loop {
        let Some(until) = in_flight.pending.as_ref().map(|pending| pending.until) else {
            return tries.ending;
        };
        let Some(one) = tries.send(in_flight, until).await else {
            return tries.ending;
        };
        let has_lease = one.target.resource.kind.has_lease();
        if tries.are_over(in_flight, one, until) {
            return tries.ending;
        }
        if let Some(pending) = &in_flight.pending {
            pending.note_sent(None);
        }
        tries.pause(until, has_lease).await;
    }
}

impl Tries {
    /// Sends the release once. `None` if its time passed before it could be sent.
    async fn send(&self, in_flight: &mut InFlight, until: Tick) -> Option<Try> {
        let session = &self.session;
        let permits = session.releaser.permits.of(in_flight.server(session));
        let permit = permits.acquire().await;
        // Its time passed while it waited behind releases that were not answered. It would not be answered either.
        if self.retry.since < until && session.now() >= until {
            drop(permit);
            in_flight.settle(ReleaseOutcome::GivenUp);
            return None;
        }
        let pending = in_flight.pending.as_mut()?;
        let target = pending.target_at(session.now());
        let unconfirmed = pending.take_unconfirmed();
        let sent_over = session.backend.epoch(&target.resource.key);
        let may_be_done = pending.may_be_done();
        let reply = if pending.withdraws {
            session.backend.withdraw(&target)
        } else {
            session.backend.release(&target)
        };
        let outcome = noting(reply, || pending.note_sent(Some(sent_over))).await;
        // Given back before the pause, so that other releases can be sent.
        drop(permit);
        Some(Try {
            target,
            unconfirmed,
            sent_over,
            may_be_done,
            outcome,
        })
    }

    /// Takes what has come of a try. Returns whether it was the last one.
    fn are_over(&mut self, in_flight: &mut InFlight, one: Try, until: Tick) -> bool {
        let is_over = self.session.now() >= until;
        match &one.outcome {
            Ok(released) => self.was_answered(in_flight, &one, *released, is_over),
            // No lease frees these permits. The release is retried, because the user may get the permission back.
            Err(fault @ Fault::Denied(_)) if !is_over && !one.target.resource.kind.has_lease() => {
                if !std::mem::replace(&mut self.was_denied, true) {
                    telemetry::release_denied(&one.target.resource.key, one.target.owner, fault);
                }
                false
            }
            Err(fault) if is_over || fault.is_final() => {
                // A release that was answered before is only repeated.
                if in_flight.settle(ReleaseOutcome::GivenUp) {
                    telemetry::release_given_up(&one.target.resource.key, one.target.owner, fault);
                }
                if fault.is_final() {
                    self.ending = Ending::Refused;
                }
                true
            }
            // The release is sent again, which is safe.
            Err(fault) => {
                let may_be_done = one.may_be_done || matches!(fault, Fault::Unknown(_));
                if let Some(pending) = in_flight.pending.as_ref().filter(|_| !may_be_done) {
                    pending.note_not_done();
                }
                false
            }
        }
    }

    /// The server has answered. Returns whether this was the last try: the release is repeated while an earlier attempt may be
    /// carried out behind it.
    fn was_answered(
        &mut self,
        in_flight: &mut InFlight,
        one: &Try,
        released: Released,
        is_over: bool,
    ) -> bool {
        let session = &self.session;
        let key = &one.target.resource.key;
        // Read after the answer: if this is still the attempt's connection, the release went over it as well.
        let epoch = session.backend.epoch(key);
        session.answered_other(key);
        self.ending = Ending::Answered(one.sent_over);
        let Some(pending) = &in_flight.pending else {
            return true;
        };
        if released == Released::NotOurs {
            telemetry::ended_before_the_loss(key, one.target.owner, one.unconfirmed);
            // After an outcome that is unknown, or the end of the lease, the hold may have ended as it should.
            if !one.may_be_done && !is_over {
                pending.found_lost(session);
            }
        }
        let may_come_late = pending.may_come_late(epoch);
        in_flight.settle(ReleaseOutcome::Answered(released));
        is_over || !may_come_late
    }

    /// Pauses before the next try.
    async fn pause(&mut self, until: Tick, has_lease: bool) {
        let session = &self.session;
        let next = session.now().after(self.retry.pause()).min(until);
        session.clock.sleep_until(next).await;
        // During one lease of the watchdog the pauses stay short, so that waiters do not wait for long. After that each
        // pause is twice as long as the last one, unless no lease frees the key.
        let short_until = self.retry.since.after(session.config.watchdog_timeout);
        if session.now() < short_until || !has_lease {
            self.retry.lengthen();
        } else {
            self.retry.lengthen_without_limit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::backend::{Attempt, Attempted};
    use crate::resource::key::{Key, Resource};
    use crate::resource::kind::Kind;
    use crate::{Client, MemoryServer};

    type Interruption = Box<dyn FnOnce(&Arc<Session>)>;

    thread_local! {
        /// What comes when the task has decided to end.
        static AT_THE_END: RefCell<Option<Interruption>> = const { RefCell::new(None) };
    }

    /// Called by the task when it has decided to end.
    pub(super) fn at_the_end(session: &Arc<Session>) {
        if let Some(interruption) = AT_THE_END.take() {
            interruption(session);
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn target(session: &Session, key: &str) -> Target {
        let resource = Resource {
            kind: Kind::Reentrant,
            key: Key::new("", key).unwrap(),
        };
        Target::of(&resource, session.new_owner())
    }

    #[tokio::test(start_paused = true)]
    async fn release_that_comes_while_the_task_of_a_retired_client_ends_is_sent() {
        let server = MemoryServer::new();
        let client = || Client::builder().in_memory(&server).unwrap();
        let (other, client) = (client(), client());
        let session = Arc::clone(&client.registry().session);
        let held = target(&session, "order:42");
        let attempt = Attempt::new(held.clone(), HOUR);
        let granted = session.backend.attempt(&attempt).await.unwrap();
        assert!(matches!(granted, Attempted::Granted { .. }));
        let until = session.now().after(HOUR);
        AT_THE_END.set(Some(Box::new(move |session| {
            session.release_later(PendingRelease::of_place(held, until));
        })));
        // The task runs for this one when the last handle of the client is dropped.
        let first = target(&session, "order:43");
        session.release_later(PendingRelease::of_place(first, until));
        drop(client);
        let lock = other.lock("order:42");
        let guard = lock.acquire().wait(Duration::from_secs(10)).await;
        assert!(AT_THE_END.take().is_none(), "the task has not ended");
        drop(guard.unwrap());
        assert_eq!(session.pending_releases(), 0);
        assert!(!session.tasks.releaser.is_running());
    }
}

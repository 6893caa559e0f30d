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
use scopeguard::defer;

use super::ending::Endings;
use super::in_flight::InFlight;
use super::pending::PendingRelease;
use super::remembered::RememberedReleases;
use super::tries::end_owner;
use crate::config::{COPIED_MUTEX, RELEASES_AT_ONCE};
use crate::hold::Hold;
use crate::session::Session;
use crate::session::per_server::PerServer;
use crate::sync::{Changes, Notify, Semaphore};
use crate::sync::{Mutex, foreign};

/// The pending releases of one client.
#[derive(Debug)]
pub(crate) struct Releaser {
    list: Mutex<List>,
    wake: Notify,
    done: Changes,
    /// Limits how many are sent at once to each server: a thousand guards that are dropped together must not time each other
    /// out.
    pub(super) permits: PerServer<Semaphore>,
    /// The holds that are being ended by the code that had them.
    pub(super) endings: Endings,
    pub(crate) remembered: RememberedReleases,
}

impl Default for Releaser {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            wake: Notify::new(),
            done: Changes::default(),
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
        let mut list = self.list.lock();
        list.open += usize::from(!pending.answered);
        list.waiting.push_back(pending);
    }

    pub(super) fn enqueue_dropped(&self, hold: &Arc<Hold>) {
        {
            let mut list = self.list.lock();
            list.open += 1;
            list.dropped.push_back(Arc::clone(hold));
        }
        self.wake();
    }

    /// How many releases are not confirmed, with those that their callers send.
    pub(crate) fn pending(&self) -> usize {
        self.open() + self.ending()
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
            // The future is made before the check. It completes at each change after that, even if it was not polled yet.
            let done = self.done.next();
            if is_done() {
                return;
            }
            done.await;
        }
    }

    /// Has `until` ask again.
    pub(crate) fn ask_again(&self) {
        self.done.announce();
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
            // Counted as dropped until the release is listed: a close that runs in between waits for it.
            let _counted = Counted(self);
            if !hold.begin_release() {
                // It was taken back.
                continue;
            }
            // `stop` has declared the loss, if there is one.
            if let Ok(release) = session.stop(&hold, session.now()) {
                release.list();
            }
        }
    }

    /// Forgets all releases: they are left to another process, or to the leases.
    pub(crate) fn abandon(&self) {
        // Also if foreign code panics before.
        defer! { self.done.announce(); }
        if let Some(mut list) = self.list.try_lock_for(COPIED_MUTEX) {
            let abandoned = std::mem::take(&mut *list);
            // The mutex first: what is dropped next may run foreign code.
            drop(list);
            drop(abandoned);
        }
    }

    /// Takes back a release that was in flight when its task ended (invariant 3). It was counted before.
    pub(super) fn put_back(&self, pending: PendingRelease) {
        self.list.lock().waiting.push_back(pending);
    }

    pub(super) fn one_answered(&self) {
        let mut list = self.list.lock();
        // Those that were abandoned are not counted any more.
        list.open = list.open.saturating_sub(1);
        drop(list);
        self.done.announce();
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

/// The releaser task of one client.
pub(crate) async fn run(session: Arc<Session>) {
    let releaser = &session.releaser;
    let mut under_way = FuturesUnordered::new();
    // Checked before each command.
    while session.identity.is_valid() {
        releaser.begin_dropped(&session);
        for pending in releaser.take() {
            under_way.push(end_owner(InFlight {
                session: Arc::clone(&session),
                pending: Some(pending),
            }));
        }
        if session.retirement.has_begun() && releaser.open() == 0 && under_way.is_empty() {
            #[cfg(test)]
            tests::at_the_end(&session);
            return;
        }
        let last_moment = session.retirement.last_moment();
        crate::sync::select! {
            () = releaser.wake.notified() => {}
            // The leases free what is left (invariant 4).
            () = session.clock.sleep_until(last_moment) => return,
            Some(()) = under_way.next() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::backend::{Attempt, Attempted, Target};
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
        Target::of(&resource, session.owners.next())
    }

    #[tokio::test(start_paused = true)]
    async fn release_that_comes_while_the_task_of_a_retired_client_ends_is_sent() {
        let server = MemoryServer::new();
        let client = || Client::builder().in_memory(&server).unwrap();
        let other = client();
        let client = client();
        let session = Arc::clone(&client.registry().session);
        let held = target(&session, "order:42");
        let attempt = Attempt::new(held.clone(), HOUR);
        let granted = session.backend.attempt(&attempt).await.unwrap();
        assert!(matches!(granted, Attempted::Granted { .. }));
        let until = session.now().after(HOUR);
        AT_THE_END.set(Some(Box::new(move |session| {
            session.release_later(PendingRelease::of_waiter(held, until));
        })));
        // The task runs for this one when the last handle of the client is dropped.
        let first = target(&session, "order:43");
        session.release_later(PendingRelease::of_waiter(first, until));
        drop(client);
        let lock = other.lock("order:42");
        let guard = lock.acquire().wait(Duration::from_secs(10)).await;
        assert!(AT_THE_END.take().is_none(), "the task has not ended");
        drop(guard.unwrap());
        assert_eq!(session.releaser.pending(), 0);
        assert!(!session.tasks.releaser.is_running());
    }
}

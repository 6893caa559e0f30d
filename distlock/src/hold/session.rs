//! What one client keeps alive: its id, its clock and backend, the holds it has, and the two tasks that serve them.
//!
//! A client outlives runtimes (a `static` one under several `#[tokio::test]`s). All state lies here and not in the
//! tasks: where a task went with its runtime, the next call starts it again in its own, and nothing is forgotten.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use uuid::Uuid;

use super::releaser::{PendingRelease, Releaser};
use super::watchdog::Watchdog;
use super::{Hold, Settled, releaser, watchdog};
use crate::backend::Backend;
use crate::clock::{Clock, Tick};
use crate::config::{Config, RETRY_PAUSE, TOKENS_KEPT};
use crate::error::Loss;
use crate::key::Key;
use crate::owner::Owner;
use crate::telemetry;

/// The part of a client that its holds need.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) backend: Arc<dyn Backend>,
    pub(super) watchdog: Watchdog,
    pub(super) releaser: Releaser,
    owners: AtomicU64,
    /// The highest fencing token seen of each key, of the keys used last.
    tokens: Mutex<LruCache<Key, u64>>,
    watchdog_runs: AtomicBool,
    releaser_runs: AtomicBool,
    /// The runtime of the newest caller: for drops on threads that have none, and for tasks whose own has gone.
    runtime: Mutex<Option<Handle>>,
    /// The server was let go while it owed an answer, and has said nothing since.
    silent: AtomicBool,
    /// Since when nobody is left who could acquire: the tasks end when nothing is left to do, or it takes too long.
    retired: OnceLock<Tick>,
    closed: AtomicBool,
}

impl Session {
    pub(crate) fn new(config: Config, clock: Clock, backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            id: Uuid::new_v4(),
            config,
            clock,
            backend,
            watchdog: Watchdog::default(),
            releaser: Releaser::default(),
            owners: AtomicU64::new(1),
            tokens: Mutex::new(LruCache::new(TOKENS_KEPT)),
            watchdog_runs: AtomicBool::new(false),
            releaser_runs: AtomicBool::new(false),
            runtime: Mutex::default(),
            silent: AtomicBool::new(false),
            retired: OnceLock::new(),
            closed: AtomicBool::new(false),
        })
    }

    /// An owner that never was before.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner::new(self.id, self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// The highest fencing token that this client has seen of a key; 0 where it saw none, or long ago.
    pub(crate) fn highest_token(&self, key: &Key) -> u64 {
        self.tokens.lock().get(key).copied().unwrap_or(0)
    }

    pub(crate) fn saw_token(&self, key: &Key, token: u64) {
        let mut tokens = self.tokens.lock();
        let highest = tokens.get_or_insert_mut(key.clone(), || token);
        *highest = token.max(*highest);
    }

    /// Is there no sign of the server since somebody gave up on its answer?
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// The server answered, or somebody has waited for its answer long enough.
    pub(crate) fn set_silent(&self, silent: bool) {
        if self.is_silent() != silent {
            self.silent.store(silent, Ordering::Relaxed);
        }
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Puts a granted hold under the watchdog's eye.
    pub(crate) fn watch(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.watchdog.watch(hold, hold.next_look());
        self.start_tasks();
    }

    /// Something about a hold has changed that may be due at once.
    pub(crate) fn look_at(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.look_again(hold);
        self.start_tasks();
    }

    /// The watchdog looks at the hold when something is due next.
    pub(super) fn look_again(&self, hold: &Hold) {
        self.watchdog.ask_at(hold.owner, hold.next_look());
    }

    /// The hold needs no renewal any more. Answers whether it was still watched.
    pub(crate) fn unwatch(&self, hold: &Hold) -> bool {
        self.watchdog.unwatch(hold.owner)
    }

    /// A hold is found lost: tells everyone, once, and ends what the server may still have of it.
    pub(crate) fn lose(self: &Arc<Self>, hold: &Hold, loss: Loss) {
        if !self.unwatch(hold) {
            return;
        }
        telemetry::lost(&hold.resource.key, hold.owner, loss);
        // Gone, too, where an earlier attempt of its owner may still come, or of several permits only one has gone.
        if loss != Loss::Gone || hold.doubt.is_some() || hold.permits > 1 {
            self.release_later(PendingRelease::of_hold(hold));
        }
        hold.announce_over();
    }

    /// The count of guards of the hold that acquisition `number` of this client has.
    pub(crate) fn count_of(&self, number: u64) -> Option<u32> {
        let owner = Owner::new(self.id, number);
        self.watchdog.find(owner).map(|hold| hold.count())
    }

    /// A release that somebody has to see through: who gets the debt, or the releaser when it is dropped.
    pub(crate) fn ticket_for(self: &Arc<Self>, pending: PendingRelease) -> ReleaseTicket {
        ReleaseTicket {
            session: Arc::clone(self),
            pending: Some(pending),
        }
    }

    /// Ends an owner in the background, until that is confirmed or its lease has ended.
    pub(crate) fn release_later(self: &Arc<Self>, pending: PendingRelease) {
        self.releaser.enqueue(pending);
        self.start_tasks();
    }

    /// Completes when no release is owed any more.
    pub(crate) async fn releases_done(self: &Arc<Self>) {
        self.start_tasks();
        self.releaser.done().await;
    }

    pub(crate) fn pending_releases(&self) -> usize {
        self.releaser.open()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn watched(&self) -> usize {
        self.watchdog.len()
    }

    /// Starts what does not run: in the caller's runtime, or from a thread without one in the newest that was seen.
    pub(crate) fn start_tasks(self: &Arc<Self>) {
        if let Some(runtime) = self.newest_runtime() {
            self.start_tasks_in(&runtime);
        }
    }

    /// Remembers the caller's runtime, if it has one. Where that has gone a task started in it ends at once.
    fn newest_runtime(&self) -> Option<Handle> {
        let mut newest = self.runtime.lock();
        if let Ok(here) = Handle::try_current()
            && newest
                .as_ref()
                .is_none_or(|newest| newest.id() != here.id())
        {
            *newest = Some(here);
        }
        newest.clone()
    }

    fn start_tasks_in(self: &Arc<Self>, runtime: &Handle) {
        if !self.watchdog_runs.load(Ordering::Acquire) {
            self.start(runtime, |session| &session.watchdog_runs, watchdog::run);
        }
        if self.releaser.has_work() && !self.releaser_runs.load(Ordering::Acquire) {
            self.start(runtime, |session| &session.releaser_runs, releaser::run);
        }
    }

    fn start<F>(
        self: &Arc<Self>,
        runtime: &Handle,
        runs: fn(&Self) -> &AtomicBool,
        task: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        if runs(self).swap(true, Ordering::AcqRel) {
            return;
        }
        let alive = RunningTask {
            session: Arc::clone(self),
            runs,
            runtime: runtime.id(),
            done: false,
        };
        drop(runtime.spawn(async move {
            // Dropped after the task: what that had in hand lies in the lists again by then.
            let mut alive = alive;
            // It wakes those who wait, and a waker of the user's own may panic: the other holds must not go without.
            while let Err(_panic) = AssertUnwindSafe(task(Arc::clone(&alive.session)))
                .catch_unwind()
                .await
            {
                let clock = &alive.session.clock;
                clock.sleep_until(clock.now().after(RETRY_PAUSE.0)).await;
            }
            alive.done = true;
        }));
    }

    /// Refuses acquisitions from here on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The last handle of the client has gone.
    pub(crate) fn retire(&self) {
        let _first = self.retired.set(self.now());
        self.watchdog.wake();
        self.releaser.wake();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get().is_some()
    }

    /// When a retired client gives up what it still owes: by then the leases that the watchdog kept have ended.
    pub(super) fn last_moment(&self) -> Tick {
        let lease = self.config.watchdog_timeout;
        self.retired
            .get()
            .map_or(Tick::NEVER, |since| since.after(lease))
    }
}

/// A debt in the hands of whoever sends the release first. Dropped unsettled, it goes to the releaser.
#[derive(Debug)]
pub(crate) struct ReleaseTicket {
    session: Arc<Session>,
    pending: Option<PendingRelease>,
}

impl ReleaseTicket {
    /// The key is to stay taken until then.
    pub(super) fn taken_until(&self) -> Tick {
        self.pending
            .as_ref()
            .map(PendingRelease::taken_until)
            .unwrap_or_default()
    }

    /// The release was answered over connection `epoch`. Only what may still come late is left to the releaser.
    pub(crate) fn settle(mut self, settled: Settled, epoch: u64) {
        if let Some(mut pending) = self.pending.take() {
            let _nobody_counted_it = pending.tell(settled);
            if pending.may_come_late(epoch) {
                self.session.release_later(pending);
            }
        }
    }
}

impl Drop for ReleaseTicket {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.session.release_later(pending);
        }
    }
}

/// Held by a running task: says when it does no more, however it ended.
struct RunningTask {
    session: Arc<Session>,
    runs: fn(&Session) -> &AtomicBool,
    runtime: Id,
    done: bool,
}

impl Drop for RunningTask {
    /// A task that went with its runtime is started again in the newest one, if that is another: whoever holds a lock
    /// there may make no call for a long time.
    fn drop(&mut self) {
        (self.runs)(&self.session).store(false, Ordering::Release);
        if self.done || self.session.is_retired() {
            return;
        }
        let newest = self.session.runtime.lock().clone();
        if let Some(newest) = newest.filter(|newest| newest.id() != self.runtime) {
            self.session.start_tasks_in(&newest);
        }
    }
}

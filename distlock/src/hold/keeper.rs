//! What one client keeps alive: its id, its clock and backend, the holds it has, and the two tasks that serve them.
//!
//! A client outlives runtimes (a `static` one under several `#[tokio::test]`s). All state lies here and not in the
//! tasks: where a task went with its runtime, the next call starts it again in its own, and nothing is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::releaser::{Debt, Releaser};
use super::watchdog::Watchdog;
use super::{Hold, Settled, releaser, watchdog};
use crate::backend::Backend;
use crate::clock::{Clock, Tick};
use crate::config::Config;
use crate::error::Loss;
use crate::owner::Owner;
use crate::telemetry;

/// The part of a client that its holds need.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) id: Uuid,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) backend: Arc<dyn Backend>,
    pub(super) watchdog: Watchdog,
    pub(super) releaser: Releaser,
    owners: AtomicU64,
    watchdog_runs: Running,
    releaser_runs: Running,
    /// Where a task was started last: for drops on threads that have no runtime.
    runtime: Mutex<Option<Handle>>,
    /// Nobody is left who could acquire: the tasks end when nothing is left to do.
    retired: AtomicBool,
    closed: AtomicBool,
}

impl Keeper {
    pub(crate) fn new(config: Config, clock: Clock, backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            id: Uuid::new_v4(),
            config,
            clock,
            backend,
            watchdog: Watchdog::default(),
            releaser: Releaser::default(),
            owners: AtomicU64::new(1),
            watchdog_runs: Running::default(),
            releaser_runs: Running::default(),
            runtime: Mutex::default(),
            retired: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// An owner that never was before.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner::new(self.id, self.owners.fetch_add(1, Ordering::Relaxed))
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
        self.watchdog.ask_at(hold, hold.next_look());
        self.start_tasks();
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
        telemetry::lost(&hold.key, hold.owner, loss);
        // Gone, too, where an earlier attempt of its owner may still come.
        if loss == Loss::Expired || hold.doubt.is_some() {
            self.release_later(Debt::of_hold(hold));
        }
        hold.announce_over();
    }

    /// The count of guards of the hold that acquisition `number` of this client has.
    pub(crate) fn count_of(&self, number: u64) -> Option<u32> {
        let owner = Owner::new(self.id, number);
        self.watchdog.find(owner).map(|hold| hold.count())
    }

    /// A release that somebody has to see through: who gets the debt, or the releaser when it is dropped.
    pub(crate) fn owe(self: &Arc<Self>, debt: Debt) -> Owed {
        Owed {
            keeper: Arc::clone(self),
            debt: Some(debt),
        }
    }

    /// Ends an owner in the background, until that is confirmed or its lease has ended.
    pub(crate) fn release_later(self: &Arc<Self>, debt: Debt) {
        self.releaser.push(debt);
        self.start_tasks();
    }

    /// Completes when no release is owed any more.
    pub(crate) async fn releases_done(self: &Arc<Self>) {
        self.start_tasks();
        self.releaser.done().await;
    }

    pub(crate) fn owed(&self) -> usize {
        self.releaser.owed()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn watched(&self) -> usize {
        self.watchdog.len()
    }

    /// Starts what does not run: in the caller's runtime, or from a thread without one in that of the last start. Where
    /// that has gone too nothing starts, and the next call from a runtime does it.
    pub(crate) fn start_tasks(self: &Arc<Self>) {
        self.watchdog_runs.start(&self.runtime, |alive| {
            let keeper = Arc::clone(self);
            async move {
                let _alive = alive;
                watchdog::run(keeper).await;
            }
        });
        if self.releaser.has_work() {
            self.releaser_runs.start(&self.runtime, |alive| {
                let keeper = Arc::clone(self);
                async move {
                    let _alive = alive;
                    releaser::run(keeper).await;
                }
            });
        }
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
        self.retired.store(true, Ordering::Release);
        self.watchdog.wake();
        self.releaser.wake();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// A debt in the hands of whoever sends the release first. Dropped unsettled, it goes to the releaser.
#[derive(Debug)]
pub(crate) struct Owed {
    keeper: Arc<Keeper>,
    debt: Option<Debt>,
}

impl Owed {
    /// The release was answered over connection `epoch`. Only what may still come late is left to the releaser.
    pub(crate) fn settle(mut self, settled: Settled, epoch: u64) {
        if let Some(mut debt) = self.debt.take() {
            let _nobody_counted_it = debt.tell(settled);
            if debt.may_come_late(epoch) {
                self.keeper.release_later(debt);
            }
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(debt) = self.debt.take() {
            self.keeper.release_later(debt);
        }
    }
}

/// Whether a task runs; it says itself when it does no more, however it ended.
#[derive(Debug, Default)]
struct Running(Arc<AtomicBool>);

/// Held by a running task.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Running {
    fn start<F>(&self, last: &Mutex<Option<Handle>>, task: impl FnOnce(Alive) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.0.load(Ordering::Acquire) {
            return;
        }
        let current = Handle::try_current().ok();
        let Some(runtime) = current.or_else(|| last.lock().clone()) else {
            return;
        };
        if !self.0.swap(true, Ordering::AcqRel) {
            *last.lock() = Some(runtime.clone());
            drop(runtime.spawn(task(Alive(Arc::clone(&self.0)))));
        }
    }
}

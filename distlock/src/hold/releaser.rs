//! Ends owners in the background: dropped guards, lost holds, and acquisitions whose outcome nobody learnt.
//!
//! A release states that the owner holds nothing, so it is always safe to send, and to send twice.
//!
//! # Invariants
//! 1. A debt is kept until its release is confirmed, or until no copy of the hold can live in the server any more.
//! 2. An attempt of unknown outcome may still lie in a dead connection's buffers and run after our release. Unless both
//!    went over one connection, which keeps their order, the release is repeated until the attempt's lease is over.
//! 3. A debt in the hands of a task that dies with its runtime goes back into the list.
//! 4. A client that nobody has any more is kept for at most one watchdog's lease by what it owes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::{Hold, Session};
use crate::backend::{Fault, Released, Target};
use crate::clock::Tick;
use crate::config::{RELEASES_AT_ONCE, RETRY_PAUSE};
use crate::telemetry;

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The server answered.
    Answered(Released),
    /// Nobody answered while it mattered: the lease has freed it.
    GivenUp,
}

/// Called once when a release is answered or given up.
type OnSettled = Box<dyn FnOnce(Settled) + Send + Sync>;

/// An owner that has to be ended.
pub(crate) struct PendingRelease {
    target: Target,
    /// The key is to stay taken until then, though nobody has it any more.
    taken_until: Tick,
    /// No copy of the hold lives in the server beyond this.
    until: Tick,
    /// The connection over which an attempt of unknown outcome went.
    doubt: Option<u64>,
    /// Nobody knows what the owner has.
    withdraws: bool,
    /// It was answered, or given up. It is kept for an attempt that may come late, and nobody waits for it.
    answered: bool,
    then: Option<OnSettled>,
}

impl PendingRelease {
    /// The owner of a hold that was granted.
    pub(crate) fn of_hold(hold: &Hold) -> Self {
        let doubt = hold.doubt.map(|doubt| doubt.until).unwrap_or_default();
        Self {
            target: hold.target(),
            taken_until: hold.taken_until(),
            // Not the end of what the key is kept for: that comes by itself.
            until: hold.latest_end().max(doubt),
            doubt: hold.doubt.map(|doubt| doubt.epoch),
            withdraws: false,
            answered: false,
            then: None,
        }
    }

    /// The owner of an attempt of unknown outcome, sent over connection `epoch`, whose lease ends at `until`.
    pub(crate) fn of_attempt(target: Target, until: Tick, epoch: u64) -> Self {
        Self {
            target,
            taken_until: Tick::default(),
            until,
            doubt: Some(epoch),
            withdraws: true,
            answered: false,
            then: None,
        }
    }

    /// The owner of a waiter that gives up its place in the server, which lasts until `until` at most.
    pub(crate) fn of_place(target: Target, until: Tick) -> Self {
        Self {
            target,
            taken_until: Tick::default(),
            until,
            doubt: None,
            withdraws: true,
            answered: false,
            then: None,
        }
    }

    /// Calls `then` when the release is answered or given up.
    pub(crate) fn then(mut self, then: impl FnOnce(Settled) + Send + Sync + 'static) -> Self {
        self.then = Some(Box::new(then));
        self
    }

    /// Nobody is to end the owner: its lease will.
    pub(crate) fn abandon(mut self) {
        let _nobody_counted_it = self.tell(Settled::GivenUp);
    }

    /// The owner ends, and what it has stays taken.
    pub(crate) fn without_permits(mut self) -> Self {
        self.target.permits = 0;
        self
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn taken_until(&self) -> Tick {
        self.taken_until
    }

    /// The target of a release that is sent now.
    fn target_at(&self, now: Tick) -> Target {
        self.target.clone().taken_until(self.taken_until, now)
    }

    /// Passes on what became of the release; whether it was the first to.
    pub(super) fn tell(&mut self, settled: Settled) -> bool {
        if let Some(then) = self.then.take() {
            then(settled);
        }
        !std::mem::replace(&mut self.answered, true)
    }

    /// May the attempt still run after a release that was answered over connection `epoch`?
    ///
    /// Not where a hold has no lease: there the server remembers the owner's end for as long as it may come.
    pub(super) fn may_come_late(&self, epoch: u64) -> bool {
        let over_another = self.doubt.is_some_and(|sent_over| sent_over != epoch);
        over_another && self.target.resource.kind.has_lease()
    }
}

impl fmt::Debug for PendingRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debt")
            .field("target", &self.target)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// The releases that are owed.
#[derive(Debug)]
pub(super) struct Releaser {
    list: Mutex<List>,
    wake: Notify,
    done: Notify,
    /// To send one: a crowd that was dropped at once must not time out for standing in its own way.
    yielding: Semaphore,
}

impl Default for Releaser {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            wake: Notify::new(),
            done: Notify::new(),
            yielding: Semaphore::new(RELEASES_AT_ONCE),
        }
    }
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<PendingRelease>,
    /// How many were never answered: waiting, or in the task's hands.
    open: usize,
}

impl Releaser {
    pub(super) fn enqueue(&self, pending: PendingRelease) {
        {
            let mut list = self.list.lock();
            list.open += usize::from(!pending.answered);
            list.waiting.push_back(pending);
        }
        self.wake();
    }

    pub(super) fn open(&self) -> usize {
        self.list.lock().open
    }

    /// Is there anything for the task to do?
    pub(super) fn has_work(&self) -> bool {
        let list = self.list.lock();
        list.open > 0 || !list.waiting.is_empty()
    }

    pub(super) async fn done(&self) {
        loop {
            let done = self.done.notified();
            if self.open() == 0 {
                return;
            }
            done.await;
        }
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    fn take(&self) -> VecDeque<PendingRelease> {
        std::mem::take(&mut self.list.lock().waiting)
    }

    fn one_answered(&self) {
        self.list.lock().open -= 1;
        self.done.notify_waiters();
    }
}

/// A debt that the task works on.
struct InFlight {
    session: Arc<Session>,
    pending: Option<PendingRelease>,
}

impl InFlight {
    fn answered(&mut self, settled: Settled) {
        if self
            .pending
            .as_mut()
            .is_some_and(|pending| pending.tell(settled))
        {
            self.session.releaser.one_answered();
        }
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
pub(super) async fn run(session: Arc<Session>) {
    let releaser = &session.releaser;
    let mut under_way = FuturesUnordered::new();
    loop {
        for pending in releaser.take() {
            under_way.push(retry_until_confirmed(InFlight {
                session: Arc::clone(&session),
                pending: Some(pending),
            }));
        }
        if session.is_retired() && releaser.open() == 0 && under_way.is_empty() {
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

async fn retry_until_confirmed(mut hand: InFlight) {
    let session = Arc::clone(&hand.session);
    let longest = session.config.longest_pause();
    let (begun, mut pause) = (session.now(), RETRY_PAUSE.0.min(longest));
    let mut was_denied = false;
    loop {
        let Some(pending) = &hand.pending else { return };
        let (until, withdraws) = (pending.until, pending.withdraws);
        let turn = session.releaser.yielding.acquire().await;
        // It ended while it waited for its turn behind others that nobody answers: that would not end for them either.
        if begun < until && session.now() >= until {
            drop(turn);
            hand.answered(Settled::GivenUp);
            break;
        }
        let Some(pending) = &hand.pending else { return };
        let target = pending.target_at(session.now());
        let outcome = if withdraws {
            session.backend.withdraw(&target).await
        } else {
            session.backend.release(&target).await
        };
        drop(turn);
        // Read after the answer: where it is the attempt's own, the release cannot have gone over another.
        let epoch = session.backend.epoch();
        let over = session.now() >= until;
        match outcome {
            Ok(released) => {
                session.set_silent(false);
                let late = hand
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.may_come_late(epoch));
                hand.answered(Settled::Answered(released));
                if over || !late {
                    break;
                }
            }
            // What no lease frees is owed for as long as the right to give it back may return.
            Err(Fault::Denied(why)) if !over && !target.resource.kind.has_lease() => {
                if !std::mem::replace(&mut was_denied, true) {
                    telemetry::release_denied(&target, &Fault::Denied(why));
                }
            }
            Err(fault) if over || fault.is_final() => {
                give_up(&mut hand, &target, &fault);
                break;
            }
            Err(_) => {}
        }
        session
            .clock
            .sleep_until(session.now().after(pause).min(until))
            .await;
        // For one watchdog's lease often enough that nobody waits long; a longer lease is looked after ever more rarely,
        // but what no lease frees comes free by nothing else.
        let in_time = session.now() < begun.after(session.config.watchdog_timeout);
        pause = if in_time || !target.resource.kind.has_lease() {
            (pause * 2).min(longest)
        } else {
            pause * 2
        };
    }
    hand.pending = None;
}

fn give_up(hand: &mut InFlight, target: &Target, fault: &Fault) {
    telemetry::release_given_up(target, fault);
    hand.answered(Settled::GivenUp);
}

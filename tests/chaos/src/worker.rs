//! A task that acquires, uses the guarded resource and releases, at random and over and over, and records what it saw.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use distlock::test_util::{held_until, token};
use distlock::{Client, Error, Guard};
use futures_util::FutureExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::panicking_waker::{may_meet_a_panic, with_panicking_waker};
use super::planned_operation::{Leave, PlannedOperation, Request, Section, Workload};
use super::time::{Time, timestamp};
use super::{branches, latch};
use crate::history::{End, Event, EventKind, History, Id, Refusal, Timestamp};
use distlock_tests::Pulse;
use distlock_tests::any_lock::LockKind;
use distlock_tests::flaws::Flaw;
use distlock_tests::resource::ResourceHandle;

/// How long it takes until a waiter has asked the server and sleeps.
const IN_LINE: Duration = Duration::from_millis(60);

/// How many leases a branch waits for others. A process that stands still for so long has lost its hold.
const PATIENCE_IN_LEASES: u32 = 4;

/// The other key of a multi-lock of this key.
pub(super) fn other_key(key: &str) -> String {
    format!("{key}:other")
}

/// Where events go.
#[derive(Clone, Debug)]
pub(super) enum Sink {
    /// Into the history of this process.
    History(History),
    /// To standard output, a line each, for the process that started this one.
    Lines,
}

/// What all workers of a process have in common.
#[derive(Clone, Debug)]
pub(super) struct WorkerContext {
    /// The number of the process.
    pub(super) process: u32,
    /// The seed of the run.
    pub(super) seed: u64,
    /// What the operations are like.
    pub(super) workload: Workload,
    /// The clock.
    pub(super) time: Time,
    /// Where events go.
    pub(super) sink: Sink,
    /// A mistake of the locks.
    pub(super) flaw: Option<Flaw>,
}

impl WorkerContext {
    fn note(&self, at: Timestamp, what: EventKind) {
        let event = Event { at, what };
        match &self.sink {
            Sink::History(history) => history.add(event),
            Sink::Lines => println!("{}", serde_json::to_string(&event).expect("an event")),
        }
    }

    pub(super) fn now(&self, what: EventKind) {
        self.note(self.time.now(), what);
    }

    /// Records the stalls of this process, until the pulse is dropped.
    #[must_use]
    pub(super) fn pulse(&self) -> Pulse {
        let context = self.clone();
        Pulse::start_with(move |stall| {
            let process = context.process;
            context.note(stall.to, EventKind::Stalled { process, stall });
        })
    }

    /// The owner's own deadline, as a timestamp of this run.
    fn deadline(&self, guard: &Guard) -> Timestamp {
        // In this order: a pause between the two makes it earlier and not later.
        let clock = self.time.clock();
        let (now, deadline) = held_until(guard);
        (clock + timestamp(deadline)).saturating_sub(timestamp(now))
    }
}

/// One task.
#[derive(Debug)]
pub(super) struct Worker {
    context: WorkerContext,
    program: Arc<[Client]>,
    resource: ResourceHandle,
    next: Id,
    random: StdRng,
    /// For what was added to operations later, so that a seed keeps its other choices.
    more_random: StdRng,
    /// Holds that their fixed leases have to end. Their guards are dropped with the worker.
    left: Vec<Held>,
}

impl Worker {
    /// The worker of this number in its process, with a client for each server.
    #[must_use]
    pub(super) fn new(
        context: &WorkerContext,
        task: u32,
        program: &Arc<[Client]>,
        resource: ResourceHandle,
    ) -> Self {
        let (process, number) = (context.process, 0);
        let who = (u64::from(process) << 40) | (u64::from(task) << 16);
        Self {
            context: context.clone(),
            program: Arc::clone(program),
            resource,
            next: Id {
                process,
                task,
                number,
            },
            random: StdRng::seed_from_u64(context.seed ^ who),
            more_random: StdRng::seed_from_u64(!(context.seed ^ who)),
            left: Vec::new(),
        }
    }

    /// Works until this time.
    pub(super) async fn work_until(mut self, end: Timestamp) {
        while self.context.time.now() < end {
            let workload = &self.context.workload;
            let planned = PlannedOperation::draw(&mut self.random, workload)
                .or_unpolled(&mut self.more_random, workload);
            sleep(planned.pause).await;
            match planned.cut {
                Some(after) => {
                    // The drop of what was cut may wake others.
                    let cut = async { drop(timeout(after, self.operate(&planned)).await) };
                    let _ended_early = may_meet_a_panic(cut).await;
                }
                None => self.operate(&planned).await,
            }
            self.next.number += 1;
        }
        let _ended_early = may_meet_a_panic(async { self.left.clear() }).await;
    }

    /// Does the same operation again and again until this time.
    pub(super) async fn repeat_until(mut self, planned: PlannedOperation, end: Timestamp) {
        while self.context.time.now() < end {
            self.operate(&planned).await;
            self.next.number += 1;
        }
    }

    /// Runs one operation. Wakers of others that panic end it early, like a dropped future.
    pub(super) async fn operate(&mut self, planned: &PlannedOperation) {
        let _ended_early = may_meet_a_panic(self.operate_once(planned)).await;
    }

    async fn operate_once(&mut self, planned: &PlannedOperation) {
        if planned.lock_kind == LockKind::Latch {
            let latch = self.program[0].count_down_latch(&planned.key);
            let visit = latch::LatchOperation::new(&self.context, self.next, &latch, planned);
            self.next.number += visit.run().await;
            return;
        }
        let Some(hold) = self.acquire(planned).await else {
            return;
        };
        let client = &self.program[0];
        let loss_reported = section(client, &mut self.resource, &hold, planned).await;
        if loss_reported {
            hold.report();
        }
        let how = if loss_reported {
            Leave::Drop
        } else {
            planned.leave
        };
        self.left.extend(hold.leave(how).await);
    }

    async fn acquire(&self, planned: &PlannedOperation) -> Option<Held> {
        let lock = planned.lock_kind.lock_on(&self.program, &planned.key);
        let wait = match planned.ask {
            Request::Try => Some(Duration::ZERO),
            Request::Await => planned.wait,
        };
        let id = self.next;
        self.context.now(EventKind::Called {
            id,
            key: planned.key.clone(),
            other_key: (planned.lock_kind == LockKind::Multi).then(|| other_key(&planned.key)),
            wait: wait.map(timestamp),
            lease: planned.lease.map(timestamp),
            shared: planned.lock_kind == LockKind::Read,
            leased: planned.lock_kind.has_lease(),
        });
        let asking = PendingAnswer::new(&self.context, id);
        let by_tries = planned.lock_kind == LockKind::Multi
            && self.context.flaw == Some(Flaw::SeveralKeysByTries);
        let answer = match planned.unpolled {
            _ if by_tries => {
                let lease = planned.lease;
                let once = || {
                    let lock = lock.clone();
                    async move { lock.acquire(Some(Duration::ZERO), lease).await }
                };
                Flaw::by_tries(once, wait).await
            }
            None if planned.panics => with_panicking_waker(lock.acquire(wait, planned.lease)).await,
            None => lock.acquire(wait, planned.lease).await,
            Some(time) => {
                let lease = planned.lease;
                let acquiring = async move { lock.acquire(wait, lease).await };
                self.unpolled(acquiring, planned.polls, time).await
            }
        };
        asking.answered(answer)
    }

    /// Polls an acquisition so often, or until it stands in line, and then not for this time.
    async fn unpolled(
        &self,
        acquiring: impl Future<Output = Result<Guard, Error>> + Send + 'static,
        polls: Option<u32>,
        time: Duration,
    ) -> Result<Guard, Error> {
        let (context, id) = (&self.context, self.next);
        let mut acquiring = Flaw::around_waiter(context.flaw, acquiring);
        let mut polled = 0;
        let polled_enough = poll_fn(|cx| match acquiring.poll_unpin(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => {
                polled += 1;
                if Some(polled) == polls {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                }
            }
        });
        let answer = tokio::select! {
            biased;
            answer = polled_enough => answer,
            () = sleep(IN_LINE) => None,
        };
        if let Some(answer) = answer {
            return answer;
        }
        context.now(EventKind::Unpolled { id });
        sleep(time).await;
        context.now(EventKind::Polled { id });
        acquiring.await
    }
}

/// An acquisition that is not answered yet.
pub(super) struct PendingAnswer<'a> {
    context: &'a WorkerContext,
    id: Id,
    answered: bool,
}

impl<'a> PendingAnswer<'a> {
    pub(super) fn new(context: &'a WorkerContext, id: Id) -> Self {
        Self {
            context,
            id,
            answered: false,
        }
    }

    /// Records an answer that is not a hold.
    pub(super) fn report(mut self, what: EventKind) {
        self.answered = true;
        self.context.now(what);
    }

    fn answered(mut self, answer: Result<Guard, Error>) -> Option<Held> {
        self.answered = true;
        let (context, id) = (self.context, self.id);
        match answer {
            Ok(guard) => {
                let (owner, deadline) = (guard.owner().to_string(), context.deadline(&guard));
                context.now(EventKind::Granted {
                    id,
                    owner,
                    deadline,
                    token: token(&guard),
                });
                let (context, guard) = (context.clone(), Some(guard));
                Some(Held { context, id, guard })
            }
            Err(error) => {
                let why = refusal(&error);
                context.now(EventKind::Refused { id, why });
                None
            }
        }
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.context.now(EventKind::Abandoned { id: self.id });
        }
    }
}

pub(super) fn refusal(error: &Error) -> Refusal {
    match error {
        _ if error.is_busy() => Refusal::Busy,
        _ if error.is_unavailable() => Refusal::Unavailable,
        Error::Denied { .. } => Refusal::Denied,
        Error::Lost { .. } => Refusal::Lost,
        other => Refusal::Other(other.to_string()),
    }
}

/// A hold. On drop it records its end before it ends.
#[derive(Debug)]
struct Held {
    context: WorkerContext,
    id: Id,
    guard: Option<Guard>,
}

impl Held {
    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("held until it is left")
    }

    fn report(&self) {
        self.context.now(EventKind::LossReported { id: self.id });
    }

    fn ending(&self, guard: &Guard) {
        let deadline = self.context.deadline(guard);
        self.context.now(EventKind::Ending {
            id: self.id,
            deadline,
        });
    }

    fn ended(&self, how: End) {
        self.context.now(EventKind::Ended { id: self.id, how });
    }

    /// Ends the hold, or returns it if its lease has to end it.
    async fn leave(mut self, how: Leave) -> Option<Self> {
        match how {
            Leave::Drop => None,
            Leave::Forget => {
                self.ended(End::Left);
                Some(self)
            }
            Leave::Release => {
                let guard = self.guard.take()?;
                self.ending(&guard);
                let releasing = PendingReleaseAnswer {
                    held: &self,
                    answered: false,
                };
                releasing.answered(guard.release().await);
                None
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.ending(&guard);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
            self.ended(End::Dropped);
            // A second panic of a thread ends the process.
            if let Err(panic) = dropped
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

/// A release that is not answered yet.
struct PendingReleaseAnswer<'a> {
    held: &'a Held,
    answered: bool,
}

impl PendingReleaseAnswer<'_> {
    fn answered(mut self, answer: Result<(), Error>) {
        self.answered = true;
        self.held.ended(match answer {
            Ok(()) => End::Released,
            Err(Error::Lost { .. }) => End::Lost,
            Err(error) if error.is_unavailable() => End::Unanswered,
            // The server refuses the release, so the lease ends the hold.
            Err(Error::Denied { .. }) => End::Unanswered,
            Err(error) => End::Other(error.to_string()),
        });
    }
}

impl Drop for PendingReleaseAnswer<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.held.ended(End::Dropped);
        }
    }
}

/// Runs the section. Returns whether the owner was told of a loss.
async fn section(
    client: &Client,
    resource: &mut ResourceHandle,
    hold: &Held,
    planned: &PlannedOperation,
) -> bool {
    let guard = hold.guard();
    let body = visit(client, resource, hold, planned);
    match planned.section {
        Section::Watched => tokio::select! {
            biased;
            () = guard.lost() => true,
            () = body => false,
        },
        Section::Scoped | Section::Nested => guard.scope(body).await.is_err(),
        Section::Panics => {
            let scope = guard.scope(async {
                body.await;
                // Without the panic hook, which counts unplanned panics.
                resume_unwind(Box::new("planned"))
            });
            match AssertUnwindSafe(scope).catch_unwind().await {
                Ok(ended) => ended.is_err(),
                Err(panic) if panic.is::<&str>() => false,
                Err(panic) => resume_unwind(panic),
            }
        }
    }
}

/// Reads, works and writes, as one step of the owner.
async fn visit(
    client: &Client,
    resource: &mut ResourceHandle,
    hold: &Held,
    planned: &PlannedOperation,
) {
    let (id, context) = (hold.id, &hold.context);
    if planned.lock_kind.capacity() > 1 {
        // The resource lets in one at a time.
        return sleep(planned.work).await;
    }
    let entry = resource.enter(&planned.key).await;
    context.now(EventKind::Entered { id });
    sleep(planned.work).await;
    if planned.section == Section::Nested {
        // The scope around it reports a loss.
        let _again = hold.guard().reenter();
        sleep(planned.work / 4).await;
        // A re-entry without a lease of its own would have the watchdog renew a hold that its lease has to end.
        if planned.lock_kind == LockKind::Multi && planned.lease.is_none() {
            let own = format!("{}:{}:{}", planned.key, id.process, id.task);
            let patience = PATIENCE_IN_LEASES * context.workload.lease;
            branches::cross(client, &planned.key, &own, patience).await;
        }
    }
    if hold.guard().is_held() {
        let accepted = resource.write(&planned.key, entry).await;
        context.now(EventKind::Wrote { id, accepted });
    }
}

//! A task that acquires, uses the guarded resource and releases, at random and over and over, and records what it saw.

mod campaign;
mod held;
mod section;
mod travel;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock::test_util::held_until;
use distlock::{Client, Error, Guard};
use distlock_tests::Pulse;
use distlock_tests::any_lock::LockKind;
use distlock_tests::flaws::Flaw;
use distlock_tests::resource::ResourceHandle;
use futures_util::FutureExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use self::held::Held;
use self::section::section;
use self::travel::Travellers;
use crate::history::{Event, EventKind, History, Id, Timestamp};
use crate::latch;
use crate::panicking_waker::{may_meet_a_panic, with_panicking_waker};
use crate::planned_operation::{Leave, More, PlannedOperation, Request, Workload};
use crate::time::{Time, timestamp};

pub(super) use self::held::{PendingAnswer, refusal};

/// How long it takes until a waiter has asked the server and sleeps.
const IN_LINE: Duration = Duration::from_millis(60);

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
    /// The detached holds of this process.
    pub(super) travellers: Travellers,
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

    fn deadline(&self, guard: &Guard) -> Timestamp {
        self.deadline_of(|| guard.remaining(), || held_until(guard))
    }

    /// An owner's own deadline, as a timestamp of this run: by what its guard says to its user, unless it has passed. A deadline made of
    /// what is left, which is never below zero, would then be now: a process that stood still would seem to have held until it went on.
    fn deadline_of(
        &self,
        remaining: impl FnOnce() -> Duration,
        held_until: impl FnOnce() -> (Duration, Duration),
    ) -> Timestamp {
        // In this order: a pause between the two makes it earlier and not later.
        let clock = self.time.clock();
        let left = remaining();
        if !left.is_zero() {
            return clock + timestamp(left);
        }
        let (now, deadline) = held_until();
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
    /// The same for what was added after that.
    newest_random: StdRng,
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
            newest_random: StdRng::seed_from_u64((context.seed ^ who).rotate_left(32)),
            left: Vec::new(),
        }
    }

    /// Works until this time.
    pub(super) async fn work_until(mut self, end: Timestamp) {
        while self.context.time.now() < end {
            let workload = &self.context.workload;
            let planned = PlannedOperation::draw(&mut self.random, workload)
                .or_unpolled(&mut self.more_random, workload)
                .or_more(&mut self.newest_random, workload);
            sleep(planned.pause).await;
            self.meet_traveller(&planned).await;
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
        match planned.more {
            Some(More::UntilFree) => return self.until_free(planned).await,
            Some(More::Campaign) => return self.campaign(planned).await,
            _ => {}
        }
        if let Some(hold) = self.acquire(planned).await {
            self.hold(hold, planned).await;
        }
    }

    /// Uses a hold, and ends it.
    async fn hold(&mut self, hold: Held, planned: &PlannedOperation) {
        let client = &self.program[0];
        let loss_reported = section(client, &mut self.resource, &hold, planned).await;
        if loss_reported {
            hold.report();
        }
        let how = if loss_reported {
            Leave::Drop
        } else if planned.more == Some(More::Detach) {
            return hold.detach(planned);
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

    /// Waits until nobody has the key.
    async fn until_free(&self, planned: &PlannedOperation) {
        let lock = planned.lock_kind.lock_on(&self.program, &planned.key);
        let id = self.next;
        self.context.now(EventKind::Called {
            id,
            key: planned.key.clone(),
            other_key: None,
            wait: planned.wait.map(timestamp),
            lease: None,
            shared: true,
            leased: true,
        });
        let asking = PendingAnswer::new(&self.context, id);
        asking.report(match lock.until_free(planned.wait).await {
            Ok(()) => EventKind::SeenFree { id },
            Err(error) => {
                let why = refusal(&error);
                EventKind::Refused { id, why }
            }
        });
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

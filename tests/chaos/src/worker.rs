//! One task that acquires, enters the resource, and releases, at random and over and over, and writes down what it saw.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use distlock::test_util::{held_until, token};
use distlock::{Client, Error, Guard};
use futures_util::FutureExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::intent::{Ask, Intent, Leave, Pace, Section};
use super::latch;
use super::time::{Time, stamp};
use crate::history::{End, Event, History, Id, Refusal, Stamp, What};
use distlock_tests::any_lock::Of;
use distlock_tests::resource::Door;

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
pub(super) struct Crew {
    /// The number of the process.
    pub(super) process: u32,
    /// The seed of the run.
    pub(super) seed: u64,
    /// What the operations are like.
    pub(super) pace: Pace,
    /// The clock.
    pub(super) time: Time,
    /// Where events go.
    pub(super) sink: Sink,
}

impl Crew {
    fn note(&self, at: Stamp, what: What) {
        let event = Event { at, what };
        match &self.sink {
            Sink::History(history) => history.add(event),
            Sink::Lines => println!("{}", serde_json::to_string(&event).expect("an event")),
        }
    }

    pub(super) fn now(&self, what: What) {
        self.note(self.time.now(), what);
    }

    /// The owner's own deadline, as a stamp of this run.
    fn deadline(&self, guard: &Guard) -> Stamp {
        // In this order: a pause between the two makes it earlier and not later.
        let clock = self.time.clock();
        let (now, deadline) = held_until(guard);
        (clock + stamp(deadline)).saturating_sub(stamp(now))
    }
}

/// One task.
#[derive(Debug)]
pub(super) struct Worker {
    crew: Crew,
    program: Arc<[Client]>,
    door: Door,
    next: Id,
    random: StdRng,
    /// Holds that are looked at no more: their fixed leases have to end them, or the worker when it is done.
    left: Vec<Held>,
}

impl Worker {
    /// The worker of this number in its process; of its clients there is one for each server.
    #[must_use]
    pub(super) fn new(crew: &Crew, task: u32, program: &Arc<[Client]>, door: Door) -> Self {
        let (process, number) = (crew.process, 0);
        let who = (u64::from(process) << 40) | (u64::from(task) << 16);
        Self {
            crew: crew.clone(),
            program: Arc::clone(program),
            door,
            next: Id {
                process,
                task,
                number,
            },
            random: StdRng::seed_from_u64(crew.seed ^ who),
            left: Vec::new(),
        }
    }

    /// Works until this time.
    pub(super) async fn work_until(mut self, end: Stamp) {
        while self.crew.time.now() < end {
            let intent = Intent::draw(&mut self.random, &self.crew.pace);
            sleep(intent.pause).await;
            match intent.cut {
                Some(after) => drop(timeout(after, self.operate(&intent)).await),
                None => self.operate(&intent).await,
            }
            self.next.number += 1;
        }
    }

    async fn operate(&mut self, intent: &Intent) {
        if intent.of == Of::Latch {
            let latch = self.program[0].count_down_latch(&intent.key);
            let visit = latch::Visit::new(&self.crew, self.next, &latch, intent);
            self.next.number += visit.pay().await;
            return;
        }
        let Some(hold) = self.acquire(intent).await else {
            return;
        };
        let told = section(&mut self.door, &hold, intent).await;
        if told {
            hold.told();
        }
        let how = if told { Leave::Drop } else { intent.leave };
        self.left.extend(hold.leave(how).await);
    }

    async fn acquire(&self, intent: &Intent) -> Option<Held> {
        let lock = intent.of.lock_on(&self.program, &intent.key);
        let wait = match intent.ask {
            Ask::Try => Some(Duration::ZERO),
            Ask::Await => intent.wait,
        };
        let id = self.next;
        self.crew.now(What::Called {
            id,
            key: intent.key.clone(),
            wait: wait.map(stamp),
            lease: intent.lease.map(stamp),
            shared: intent.of == Of::Read,
            leased: intent.of.has_lease(),
        });
        let asking = Asking::new(&self.crew, id);
        asking.answered(lock.acquire(wait, intent.lease).await)
    }
}

/// An acquisition that is not answered yet.
pub(super) struct Asking<'a> {
    crew: &'a Crew,
    id: Id,
    answered: bool,
}

impl<'a> Asking<'a> {
    pub(super) fn new(crew: &'a Crew, id: Id) -> Self {
        Self {
            crew,
            id,
            answered: false,
        }
    }

    /// By something else than a hold.
    pub(super) fn told(mut self, what: What) {
        self.answered = true;
        self.crew.now(what);
    }

    fn answered(mut self, answer: Result<Guard, Error>) -> Option<Held> {
        self.answered = true;
        let (crew, id) = (self.crew, self.id);
        match answer {
            Ok(guard) => {
                let (owner, deadline) = (guard.owner().to_string(), crew.deadline(&guard));
                crew.now(What::Granted {
                    id,
                    owner,
                    deadline,
                    token: token(&guard),
                });
                let (crew, guard) = (crew.clone(), Some(guard));
                Some(Held { crew, id, guard })
            }
            Err(error) => {
                let why = refusal(&error);
                crew.now(What::Refused { id, why });
                None
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.crew.now(What::GivenUp { id: self.id });
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

/// A hold. Dropped, it writes down that it ends before it does.
#[derive(Debug)]
struct Held {
    crew: Crew,
    id: Id,
    guard: Option<Guard>,
}

impl Held {
    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("held until it is left")
    }

    fn told(&self) {
        self.crew.now(What::Told { id: self.id });
    }

    fn ending(&self, guard: &Guard) {
        let deadline = self.crew.deadline(guard);
        self.crew.now(What::Ending {
            id: self.id,
            deadline,
        });
    }

    fn ended(&self, how: End) {
        self.crew.now(What::Ended { id: self.id, how });
    }

    /// Ends the hold, or gives it back where it is to be left alone.
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
                let releasing = Releasing {
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
            drop(guard);
            self.ended(End::Dropped);
        }
    }
}

/// A release that is not answered yet.
struct Releasing<'a> {
    held: &'a Held,
    answered: bool,
}

impl Releasing<'_> {
    fn answered(mut self, answer: Result<(), Error>) {
        self.answered = true;
        self.held.ended(match answer {
            Ok(()) => End::Released,
            Err(Error::Lost { .. }) => End::Lost,
            Err(error) if error.is_unavailable() => End::Unanswered,
            // What the server refuses, its lease ends.
            Err(Error::Denied { .. }) => End::Unanswered,
            Err(error) => End::Other(error.to_string()),
        });
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.held.ended(End::Dropped);
        }
    }
}

/// Runs the section. Was the owner told of a loss?
async fn section(door: &mut Door, hold: &Held, intent: &Intent) -> bool {
    let guard = hold.guard();
    let body = visit(door, hold, intent);
    match intent.section {
        Section::Watched => tokio::select! {
            biased;
            () = guard.lost() => true,
            () = body => false,
        },
        Section::Scoped | Section::Nested => guard.scope(body).await.is_err(),
        Section::Panics => {
            let scope = guard.scope(async {
                body.await;
                // Not by the hook: that counts the panics that nobody planned.
                resume_unwind(Box::new("planned"))
            });
            let ended = AssertUnwindSafe(scope).catch_unwind().await;
            matches!(ended, Ok(Err(_)))
        }
    }
}

/// Reads, works and writes, as one step of whoever holds the lock.
async fn visit(door: &mut Door, hold: &Held, intent: &Intent) {
    let (id, crew) = (hold.id, &hold.crew);
    if intent.of.capacity() > 1 {
        // The resource lets in one at a time.
        return sleep(intent.work).await;
    }
    let entry = door.enter(&intent.key).await;
    crew.now(What::Entered { id });
    sleep(intent.work).await;
    if intent.section == Section::Nested {
        // A loss is found by the scope around it.
        let _again = hold.guard().reenter();
        sleep(intent.work / 4).await;
    }
    if hold.guard().is_held() {
        let accepted = door.write(&intent.key, entry).await;
        crew.now(What::Wrote { id, accepted });
    }
}

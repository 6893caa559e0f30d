//! Runs on the memory backend, on paused time, with the faults of a decorator: fast, and nearly the same each time.

mod inject;
mod leftovers;
mod plan;
mod situations;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::any_lock::{LockKind, PERMITS};
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::flaws::Flaw;
use distlock_tests::resource::{Resource, ResourceHandle};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::fault_plan::FaultPlan;
use super::planned_operation::{Workload, margin, unpolled};
use super::time::{Time, timestamp};
use super::worker::{Sink, Worker, WorkerContext};
use super::{NEVER_MET, Outcome, error_counter, evaluate};
use crate::history::{Bounds, History};

pub use plan::{MemoryFault, Untold, mixed_plan, plan};

const LEASE: Duration = Duration::from_secs(3);

/// Less than the shortest fixed lease.
const MARGIN: Duration = Duration::from_millis(15);

/// So much longer that a quarter of it, which a grant must have left, is more than the others' whole lease.
const LONGEST_LEASE: Duration = LEASE.saturating_mul(5);

/// The client's own rule: a sixth of the lease.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// More than two leases without faults at the end, in which every waiter has to make progress.
const UNDISTURBED: Duration = Duration::from_secs(8);
const CLIENT_SETS: usize = 2;

/// Workers have lower numbers. Tasks of the situations count from this one.
const FIRST_GUEST: u32 = 1_000;

/// Many tasks, so that holds are handed over; or few, so that keys are free often and a missed wake-up shows.
const TASKS: [u32; 2] = [16, 6];

/// A panic may keep others from what woke them as well. A waiter that hears nothing looks at its key after 5 s.
const WAKE_AFTER_A_PANIC: Duration = Duration::from_millis(5_500);

/// The longest pause of a spin lock without a `backoff`.
const SPIN_PAUSE: Duration = Duration::from_millis(128);

/// A command that met a fault is sent again, and a hold of unknown outcome is released, after pauses of at most a tenth of
/// the lease. No waiter depends on the end of a lease.
const HEALS: Duration = Duration::from_millis(700);
const BOUNDS: Bounds = Bounds {
    lease: LEASE.as_nanos() as u64,
    wake: 250_000_000,
    late: 50_000_000,
    // A hand-over is confirmed within 10 ms.
    confirmed: 20_000_000,
    // Some five times what was measured at most.
    passes: 100,
    // Two looks at the queue, a second apart.
    absent: 2_000_000_000,
    aftermath: 0,
    in_order: false,
    capacity: 1,
    settle: HEALS.as_nanos() as u64,
    margin: 0,
};

fn bounds(lock_kind: LockKind) -> Bounds {
    Bounds {
        in_order: lock_kind.is_fair(),
        capacity: match lock_kind {
            LockKind::Permit | LockKind::Semaphore => lock_kind.capacity(),
            _ => 1,
        },
        wake: match lock_kind {
            // A release by the client of the waiter leaves the key free for the longest pause of those that poll.
            LockKind::Spin => BOUNDS.wake + SPIN_PAUSE.as_nanos() as u64,
            _ => BOUNDS.wake,
        },
        settle: match lock_kind {
            // An abandoned change may arrive as late as its fault ends.
            LockKind::Latch => BOUNDS.lease,
            _ => BOUNDS.settle,
        },
        ..BOUNDS
    }
}

/// The lease of the client of a server: in half of the runs of a Redlock the first client has a longer one than the others,
/// which does not count for the hold.
fn lease_on(at: usize, servers: usize, seed: u64) -> Duration {
    let is_longer = at == 0 && servers > 1 && seed % 4 < 2;
    if is_longer { LONGEST_LEASE } else { LEASE }
}

fn workload(lock_kind: LockKind, seed: u64) -> Workload {
    Workload {
        lock_kind,
        lease: LEASE,
        margin: margin(seed, MARGIN),
        work: Duration::from_millis(60),
        long: 24,
        unpolled: unpolled(seed) * u32::from(plan::plays_rare_faults(seed)),
        panics: 0,
        pause: Duration::from_millis(400),
        wait: LEASE,
        keys: ["a", "b", "c", "d", "e"].map(String::from).to_vec(),
    }
}

/// Plays a list of faults on locks of this kind, with or without a flaw.
///
/// # Panics
/// If the run itself fails.
#[must_use]
pub fn run(plan: &FaultPlan<MemoryFault>, lock_kind: LockKind, flaw: Option<Flaw>) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    error_counter::install();
    let errors = error_counter::panics_on_this_thread();
    // Inside of the runtime, whose clock stands still. Outside of it the clock of the run would begin in real time, and later
    // on a busy machine.
    let run = async { MemoryRun::new(plan.seed, lock_kind, flaw).play(plan).await };
    let mut outcome = runtime.block_on(run);
    if error_counter::panics_on_this_thread() > errors {
        outcome.found("A11", String::from("a panic"));
    }
    outcome
}

/// All commands of some verbs meet one fault.
type Outage = (Vec<Op>, Fault);

struct MemoryRun {
    context: WorkerContext,
    history: History,
    servers: Vec<MemoryServer>,
    faults: Faults,
    /// The fault that all commands of some operations meet now. It counts as one, no matter how many it meets.
    outage: Arc<Mutex<Option<Outage>>>,
    /// How many faults of single commands still wait for their command.
    planned: Arc<AtomicUsize>,
    client_sets: Vec<Arc<[Client]>>,
    admin: Vec<Client>,
    resource: Resource,
    /// The situations that are played beside the workers.
    situations: AsyncMutex<JoinSet<()>>,
    /// How many operations belong to situations so far.
    guests: AtomicU32,
}

impl MemoryRun {
    fn new(seed: u64, lock_kind: LockKind, flaw: Option<Flaw>) -> Self {
        let (history, faults) = (History::default(), Faults::new());
        let servers: Vec<_> = (0..lock_kind.servers())
            .map(|_| MemoryServer::new())
            .collect();
        // All servers meet the faults, or some: without a minority there is still a quorum.
        let meeting = 1 + (seed / 2) as usize % servers.len();
        let client = |(at, server): (usize, &MemoryServer)| {
            let mut builder = Client::builder()
                .watchdog_timeout(lease_on(at, servers.len(), seed))
                .response_timeout(RESPONSE_TIMEOUT);
            if flaw != Some(Flaw::MarginForgotten) {
                builder = builder.lease_margin(margin(seed, MARGIN));
            }
            if at < meeting {
                builder = builder.faults(&faults);
            }
            if let Some(flaw) = flaw {
                builder = builder.flaw(flaw);
            }
            builder.in_memory(server).expect("a client")
        };
        let program = |_| servers.iter().enumerate().map(client).collect();
        let client_sets = (0..CLIENT_SETS).map(program).collect();
        let admin = |server| Client::builder().in_memory(server).expect("a client");
        let admin = servers.iter().map(admin).collect();
        let context = WorkerContext {
            process: 0,
            seed,
            workload: Workload {
                // Lists of all faults, which flaws need, also have those that wake waiters themselves.
                panics: if flaw.is_none() {
                    plan::panics_of(seed)
                } else {
                    0
                },
                ..workload(lock_kind, seed)
            },
            time: Time::paused(),
            sink: Sink::History(history.clone()),
            flaw,
            travellers: Default::default(),
        };
        Self {
            context,
            history,
            servers,
            faults,
            outage: Arc::default(),
            planned: Arc::default(),
            client_sets,
            admin,
            resource: Resource::default(),
            situations: AsyncMutex::default(),
            guests: AtomicU32::new(FIRST_GUEST),
        }
    }

    async fn play(self, plan: &FaultPlan<MemoryFault>) -> Outcome {
        self.note_hits();
        if self.context.workload.lock_kind == LockKind::Semaphore {
            for key in &self.context.workload.keys {
                let semaphore = self.admin[0].semaphore(key.as_str());
                semaphore.try_set_permits(PERMITS).await.expect("no fault");
            }
        }
        let (begin, end) = (
            Instant::now(),
            self.context.time.clock() + timestamp(plan.lasts + UNDISTURBED),
        );
        let mut workers = JoinSet::new();
        let tasks = TASKS[usize::from(plan.seed.is_multiple_of(2))];
        for task in 0..tasks {
            let program = &self.client_sets[task as usize % CLIENT_SETS];
            let worker = Worker::new(
                &self.context,
                task,
                program,
                ResourceHandle::Local(self.resource.clone()),
            );
            workers.spawn(worker.work_until(end));
        }
        let mut calm_until = begin;
        for step in &plan.steps {
            if begin + step.at < calm_until {
                continue;
            }
            sleep_until(begin + step.at).await;
            let is_last = step.at == plan.lasts;
            if is_last {
                self.clear_faults();
            }
            // The end of the run stays without other faults, also if this one would begin late or last too long.
            let in_time = begin.elapsed() + step.length < plan.lasts;
            if (in_time || is_last) && self.applies(&step.fault) {
                self.apply(step).await;
                if matches!(step.fault, MemoryFault::Hang) {
                    // Other faults would hide the outcome of the attempts that are executed now.
                    calm_until = Instant::now() + LEASE;
                }
            }
        }
        self.clear_faults();
        let hang = sleep(LEASE * 100);
        let situations = std::mem::take(&mut *self.situations.lock().await);
        tokio::select! {
            _ = async { (workers.join_all().await, situations.join_all().await) } => {}
            () = hang => {}
        }
        let mut bounds = bounds(self.context.workload.lock_kind);
        bounds.margin = timestamp(self.context.workload.margin);
        if self.context.workload.panics > 0 {
            bounds.wake = timestamp(WAKE_AFTER_A_PANIC);
        }
        let mut outcome = evaluate(
            ("memory", plan.seed),
            &self.history,
            &bounds,
            &self.resource,
        );
        let never = self.planned.load(Ordering::Relaxed);
        outcome.faults.insert(String::from(NEVER_MET), (0, never));
        if let Some(wrong) = self.wrong_sum().await {
            outcome.found("A9", wrong);
        }
        if let Some(left) = self.leftovers().await {
            outcome.found("A10", left);
        }
        outcome
    }
}

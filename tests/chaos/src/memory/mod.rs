//! Runs on the memory backend, on paused time, with the faults of a decorator: fast, and nearly the same each time.

mod leftovers;
mod plan;
mod situations;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, MemoryServer};
use distlock_tests::Disturbed as _;
use distlock_tests::faults::{Fault, Faults, Op};
use distlock_tests::flaws::Flaw;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::fault_plan::{FaultPlan, PlannedFault};
use super::panicking_waker::may_meet_a_panic;
use super::planned_operation::{Workload, unpolled};
use super::time::{Time, timestamp};
use super::worker::{Sink, Worker, WorkerContext};
use super::{Outcome, error_counter, evaluate};
use crate::history::{self, Affected, Bounds, Event, EventKind, History, Timestamp, Wiped};
use distlock_tests::any_lock::{AnyLock, LockKind, PERMITS};
use distlock_tests::resource::{Resource, ResourceHandle};

pub use plan::{MemoryFault, Untold, mixed_plan, plan};

const LEASE: Duration = Duration::from_secs(3);

/// So much longer that a quarter of it, which a grant must have left, is more than the others' whole lease.
const LONGEST_LEASE: Duration = LEASE.saturating_mul(5);

/// The client's own rule: a sixth of the lease.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// More than two leases without faults at the end, in which every waiter has to make progress.
const UNDISTURBED: Duration = Duration::from_secs(8);

/// The operations of the backend that meet faults.
const COMMANDS: [Op; 3] = [Op::Attempt, Op::Renew, Op::Release];

/// The kind of a fault after which the clients connect again.
const RESTART: &str = "restart";
const STALE_COPY: &str = "stale copy";

/// The kind of a fault at whose end attempts of its whole time are executed.
const HANG: &str = "hang";

const CLIENT_SETS: usize = 2;

/// Workers have lower numbers. Tasks of the situations count from this one.
const FIRST_GUEST: u32 = 1_000;

/// Many tasks, so that holds are handed over; or few, so that keys are free often and a missed wake-up shows.
const TASKS: [u32; 2] = [16, 6];

/// A panic may keep others from what woke them as well. A waiter that hears nothing looks at its key after 5 s.
const WAKE_AFTER_A_PANIC: Duration = Duration::from_millis(5_500);

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
};

fn bounds(lock_kind: LockKind) -> Bounds {
    Bounds {
        in_order: lock_kind.is_fair(),
        capacity: match lock_kind {
            LockKind::Permit | LockKind::Semaphore => lock_kind.capacity(),
            _ => 1,
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
                    // Other faults would hide what came of the attempts that are executed now.
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
        outcome
            .faults
            .insert(String::from("single, never met"), (0, never));
        if let Some(wrong) = self.wrong_sum().await {
            outcome.found("A9", wrong);
        }
        if let Some(left) = self.leftovers().await {
            outcome.found("A10", left);
        }
        outcome
    }

    /// Records each fault of the decorator when it happens. An outage is one fault, no matter how many commands it meets.
    fn note_hits(&self) {
        let (history, time) = (self.history.clone(), self.context.time.clone());
        let (outage, planned) = (Arc::clone(&self.outage), Arc::clone(&self.planned));
        self.faults.on_hit(move |op, fault| {
            let lasts = match fault {
                Fault::FailBefore | Fault::FailAfter | Fault::Garbled | Fault::Double => {
                    Duration::ZERO
                }
                Fault::Delay(by)
                | Fault::DelayReply(by)
                | Fault::FailLate(by)
                | Fault::Late(by) => by,
                Fault::Never => RESPONSE_TIMEOUT,
                Fault::Hung | Fault::Muted => return,
            };
            let outage = outage.lock().unwrap();
            if outage
                .as_ref()
                .is_some_and(|(ops, all)| ops.contains(&op) && *all == fault)
            {
                return;
            }
            planned.fetch_sub(1, Ordering::Relaxed);
            let name = format!("{fault:?}");
            let name = name.split('(').next().unwrap_or_default();
            let happened = history::Fault {
                kind: format!("{op:?} {name}"),
                from: time.clock(),
                to: time.clock() + timestamp(whole_steps(lasts)),
                wiped: Wiped::Nothing,
                affected: affected(&[op]),
                heals: if fault == Fault::Double {
                    0
                } else {
                    timestamp(HEALS)
                },
                hit: true,
                delays_attempts: op == Op::Attempt && matches!(fault, Fault::Late(_)),
                reconnects: false,
            };
            let at = time.now();
            history.add(Event {
                at,
                what: EventKind::Fault(happened),
            });
        });
    }

    /// Whether the fault can meet anything. A spin lock waits without messages. Permits without a lease are never renewed,
    /// and are lost for ever if their semaphore is deleted.
    fn applies(&self, fault: &MemoryFault) -> bool {
        let lock_kind = self.context.workload.lock_kind;
        match fault {
            MemoryFault::Mute => lock_kind != LockKind::Spin,
            MemoryFault::Wipe(_) | MemoryFault::Restart(_) => {
                lock_kind.has_lease() && lock_kind != LockKind::Latch
            }
            MemoryFault::StaleCopy | MemoryFault::Unpolled | MemoryFault::Untold(_) => {
                situations::plain(lock_kind).is_some()
            }
            MemoryFault::HotKeys => lock_kind == LockKind::Multi,
            MemoryFault::Forgotten => lock_kind == LockKind::Red,
            // A server remembers what became of a request for a number, for some leases.
            MemoryFault::Hang => lock_kind.has_lease() && lock_kind != LockKind::Latch,
            _ if lock_kind == LockKind::Latch => true,
            MemoryFault::Next(op, _) => lock_kind.has_lease() || *op != Op::Renew,
            MemoryFault::Outage(ops) | MemoryFault::RepliesLost(ops) => {
                lock_kind.has_lease() || **ops != [Op::Renew]
            }
            MemoryFault::Slow(_) => true,
        }
    }

    async fn apply(&self, step: &PlannedFault<MemoryFault>) {
        let from = self.context.time.clock();
        match &step.fault {
            MemoryFault::Next(op, fault) => {
                self.planned.fetch_add(1, Ordering::Relaxed);
                let op = match self.context.workload.lock_kind {
                    LockKind::Latch => Op::Adjust,
                    _ => *op,
                };
                self.faults.next(op, *fault);
            }
            MemoryFault::Outage(ops) => {
                let hit = self.all_meet(ops, Fault::Never, step.length).await;
                // A hold whose release failed ends by its lease.
                let kind = format!("outage of {ops:?}");
                let what = (Wiped::Nothing, affected(ops));
                self.note(&kind, from, what, LEASE, hit);
            }
            MemoryFault::RepliesLost(ops) => {
                let hit = self.all_meet(ops, Fault::FailAfter, step.length).await;
                let kind = format!("unheard {ops:?}");
                let what = (Wiped::Nothing, affected(ops));
                self.note(&kind, from, what, HEALS, hit);
            }
            MemoryFault::Slow(fault) => {
                let hit = self.all_meet(self.commands(), *fault, step.length).await;
                let what = (Wiped::Nothing, Affected::Everybody);
                self.note("slow", from, what, HEALS, hit);
            }
            MemoryFault::Mute => {
                let before = self.faults.hits(Op::Subscribe);
                let _fell = self.faults.mute();
                sleep(step.length).await;
                self.faults.unmute();
                let hit = self.faults.hits(Op::Subscribe) > before;
                self.note(
                    "deaf",
                    from,
                    (Wiped::Nothing, Affected::Nobody),
                    Duration::ZERO,
                    hit,
                );
            }
            MemoryFault::Wipe(key) => {
                let hit = self.wipe(key).await;
                let from = self.context.time.clock();
                let what = (Wiped::One(key.clone()), Affected::Nobody);
                self.note("wipe", from, what, Duration::ZERO, hit);
            }
            MemoryFault::Restart(key) => {
                let hit = self.wipe(key).await;
                self.faults.reconnect();
                let from = self.context.time.clock();
                let what = (Wiped::One(key.clone()), Affected::Nobody);
                self.note(RESTART, from, what, Duration::ZERO, hit);
            }
            MemoryFault::Hang => {
                let hit = self.hang(step.length).await;
                let what = (Wiped::Nothing, Affected::Everybody);
                self.note(HANG, from, what, HEALS, hit);
            }
            MemoryFault::StaleCopy => {
                if let Some((key, from)) = self.stale_copy().await {
                    let what = (Wiped::One(key), Affected::Nobody);
                    self.note(STALE_COPY, from, what, Duration::ZERO, true);
                }
            }
            MemoryFault::Unpolled => self.unpolled(step.length).await,
            MemoryFault::HotKeys => self.hot_keys().await,
            MemoryFault::Forgotten => self.forgotten_in_turn().await,
            MemoryFault::Untold(how) => self.untold(*how, step.length).await,
        }
    }

    /// All commands of these operations meet a fault for this long. Returns whether any did, after their answers.
    async fn all_meet(&self, ops: &[Op], fault: Fault, length: Duration) -> bool {
        let ops = match self.context.workload.lock_kind {
            LockKind::Latch => self.commands(),
            _ => ops,
        };
        let before = self.hits();
        *self.outage.lock().unwrap() = Some((ops.to_vec(), fault));
        for op in ops {
            self.faults.always(*op, fault);
        }
        sleep(length).await;
        self.clear_faults();
        *self.outage.lock().unwrap() = None;
        if fault != Fault::FailAfter {
            sleep(RESPONSE_TIMEOUT).await;
        }
        self.hits() > before
    }

    /// Deletes a lock's data as soon as there is any.
    async fn wipe(&self, key: &str) -> bool {
        let lock_kind = self.context.workload.lock_kind;
        let lock = lock_kind.lock_on(&self.admin, key);
        // Either side may hold a read/write lock.
        let writer = LockKind::Write.lock_on(&self.admin, key);
        for _ in 0..100 {
            let freed = async |lock: &AnyLock| {
                let mut has_panicked = false;
                loop {
                    match may_meet_a_panic(lock.force_release()).await {
                        Some(freed) => return freed.expect("no fault") || has_panicked,
                        // A waiter was woken, so a lock was freed. It may be on other servers still.
                        None => has_panicked = true,
                    }
                }
            };
            if freed(&lock).await || lock_kind == LockKind::Read && freed(&writer).await {
                if lock_kind == LockKind::Permit {
                    let semaphore = self.admin[0].expirable_semaphore(key);
                    let _set = semaphore.try_set_permits(PERMITS).await;
                }
                return true;
            }
            sleep(LEASE / 500).await;
        }
        false
    }

    /// The operations of the backend that meet faults in this run.
    fn commands(&self) -> &'static [Op] {
        match self.context.workload.lock_kind {
            LockKind::Latch => &[Op::Adjust],
            _ => &COMMANDS,
        }
    }

    fn hits(&self) -> usize {
        self.commands().iter().map(|op| self.faults.hits(*op)).sum()
    }

    fn clear_faults(&self) {
        for op in self.commands() {
            self.faults.clear(*op);
        }
    }

    fn note(
        &self,
        kind: &str,
        from: Timestamp,
        (wiped, affected): (Wiped, Affected),
        heals: Duration,
        hit: bool,
    ) {
        let (at, to) = (self.context.time.now(), self.context.time.clock());
        let fault = history::Fault {
            kind: kind.to_owned(),
            from,
            to,
            wiped,
            affected,
            heals: timestamp(heals),
            hit,
            delays_attempts: kind == HANG,
            // Only some of the servers of a Redlock are behind the faults.
            reconnects: [RESTART, STALE_COPY].contains(&kind) && self.servers.len() == 1,
        };
        self.history.add(Event {
            at,
            what: EventKind::Fault(fault),
        });
    }
}

/// How long a sleep of this time takes. Tokio's timers end at whole milliseconds.
fn whole_steps(sleep: Duration) -> Duration {
    Duration::from_millis(sleep.as_nanos().div_ceil(1_000_000) as u64)
}

/// Only faults of renewals may cost a hold.
fn affected(ops: &[Op]) -> Affected {
    if ops.contains(&Op::Renew) {
        Affected::Everybody
    } else {
        Affected::Nobody
    }
}

//! Runs on real servers, with clients in this process and in children, and faults of all of them. See [`Ground`] for what
//! the servers are.

mod calm;
pub mod child;
mod ground;
mod inject;
mod leftovers;
mod numbers;
mod plan;
mod replicas;
mod wires;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use distlock::Client;
use tokio::runtime::Builder;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use self::child::{ChildConfig, connect};
pub use self::ground::Ground;
use self::ground::Servers;
use self::numbers::Numbers;
use self::plan::{FaultPlans, plans};
use self::wires::Wires;
use super::time::{Time, timestamp};
use super::worker::{Sink, Worker, WorkerContext};
use super::{Outcome, Workload, error_counter, evaluate};
use crate::history::{Bounds, History, Timestamp};
use distlock_tests::Pulse;
use distlock_tests::any_lock::{LockKind, PERMITS};
use distlock_tests::flaws::Flaw;
use distlock_tests::process::Process;
use distlock_tests::resource::{Resource, ResourceHandle, Served};

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// For how long faults are injected.
    faulty: Duration,
    /// For how long operations go on after the last fault: its consequences [heal](Ground::heals), and afterwards every waiter
    /// has to make progress.
    undisturbed: Duration,
    /// Clients of the tester's process; of a Redlock, sets of clients.
    client_sets: usize,
    /// Workers in the tester's process.
    tasks: u32,
    /// Child processes.
    children: usize,
    /// Workers in each of them.
    tasks_of_a_child: u32,
    /// Locks.
    keys: usize,
}

impl Scale {
    /// Keeps some third of a core busy for 20 s.
    pub const FULL: Self = Self {
        faulty: Duration::from_secs(12),
        undisturbed: Duration::from_secs(8),
        client_sets: 4,
        tasks: 40,
        children: 3,
        tasks_of_a_child: 8,
        keys: 20,
    };

    /// So small that a dozen of them run at once.
    pub const SMOKE: Self = Self {
        faulty: Duration::from_secs(3),
        undisturbed: Duration::from_secs(6),
        client_sets: 2,
        tasks: 12,
        children: 2,
        tasks_of_a_child: 4,
        keys: 6,
    };

    /// The same with faults for this long.
    #[must_use]
    pub const fn with_faults_for(self, faulty: Duration) -> Self {
        Self { faulty, ..self }
    }

    /// The same, and afterwards this long without.
    #[must_use]
    pub const fn then_undisturbed_for(self, undisturbed: Duration) -> Self {
        Self {
            undisturbed,
            ..self
        }
    }
}

/// How many waiters in a thousand are not polled for some time, in a third of the runs.
const UNPOLLED: u32 = 3;

/// Longer than any run.
const NEVER: Duration = Duration::from_secs(3_600);

/// Some ten times the bounds of paused time, but below the lease, whose end would also wake a waiter. Stalls come on top.
const BOUNDS: Bounds = Bounds {
    lease: 0,
    wake: 1_500_000_000,
    late: 1_000_000_000,
    confirmed: 1_010_000_000,
    // What processes give each other is not known.
    passes: usize::MAX,
    // Two looks at the queue, a second apart, and the release of what was granted.
    absent: 5_000_000_000,
    aftermath: 1_000_000_000,
    in_order: false,
    capacity: 1,
    settle: 0,
};

/// What a run on real servers is made of.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The path of the program `chaos` of this package, which the child processes run.
    binary: String,
    ground: Ground,
    lock_kind: LockKind,
    /// Of the clients in the tester's process.
    flaw: Option<Flaw>,
    scale: Scale,
    only_kills: bool,
}

impl RunConfig {
    /// On one server, with all faults and without a mistake.
    #[must_use]
    pub fn new(binary: &str, lock_kind: LockKind, scale: Scale) -> Self {
        Self {
            binary: binary.to_owned(),
            ground: Ground::Server,
            lock_kind,
            flaw: None,
            scale,
            only_kills: false,
        }
    }

    /// The same on these servers.
    #[must_use]
    pub fn on(self, ground: Ground) -> Self {
        Self { ground, ..self }
    }

    /// The same with this mistake of the clients in the tester's process.
    #[must_use]
    pub fn with_flaw(self, flaw: Flaw) -> Self {
        let flaw = Some(flaw);
        Self { flaw, ..self }
    }

    /// The same, but a child process is killed each second, and nothing else happens.
    #[must_use]
    pub fn only_kills(self) -> Self {
        let only_kills = true;
        Self { only_kills, ..self }
    }

    /// Plays the operations and faults of a seed.
    ///
    /// # Panics
    /// If the run itself fails.
    #[must_use]
    pub fn run(&self, seed: u64) -> Outcome {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let outcome = runtime.block_on(self.play(seed));
        // Not dropped, since that would wait for a blocked thread.
        runtime.shutdown_background();
        outcome
    }

    async fn play(&self, seed: u64) -> Outcome {
        error_counter::install();
        let (workload, errors) = (
            workload(self.ground, self.lock_kind, self.scale.keys, seed),
            error_counter::count(),
        );
        let plans = if self.only_kills {
            FaultPlans::of_kills(seed, self.scale.faulty)
        } else {
            let subscribes = self.lock_kind != LockKind::Spin;
            let ground = (self.ground, seed);
            plans(ground, self.scale.faulty, &workload.keys, subscribes)
        };
        let run = RedisRun::new(seed, workload, self).await;
        let mut outcome = run.play(&plans).await;
        if error_counter::count() > errors {
            outcome.found("A11", String::from("a panic, or an error in the log"));
        }
        if !outcome.violations.is_empty() {
            let FaultPlans {
                server,
                wire,
                processes,
            } = &plans;
            eprintln!("{server}{wire}{processes}{outcome}");
        }
        outcome
    }
}

fn bounds(ground: Ground, lock_kind: LockKind) -> Bounds {
    Bounds {
        lease: timestamp(ground.lease()),
        settle: timestamp(ground.heals()),
        in_order: lock_kind.is_fair(),
        capacity: match lock_kind {
            LockKind::Permit | LockKind::Semaphore => lock_kind.capacity(),
            _ => 1,
        },
        ..BOUNDS
    }
}

fn workload(ground: Ground, lock_kind: LockKind, keys: usize, seed: u64) -> Workload {
    Workload {
        lock_kind,
        lease: ground.lease(),
        work: Duration::from_millis(4),
        pause: Duration::from_millis(30),
        wait: Duration::from_secs(2),
        long: 2,
        unpolled: if seed % 3 == 1 { UNPOLLED } else { 0 },
        panics: 0,
        keys: (0..keys).map(|n| format!("chaos:{n}")).collect(),
    }
}

struct RedisRun {
    context: WorkerContext,
    history: History,
    servers: Mutex<Servers>,
    /// Of each server that a client connects to.
    urls: Vec<String>,
    wires: Wires,
    resource: Resource,
    served: Served,
    client_sets: Vec<Arc<[Client]>>,
    config: RunConfig,
    pulse: Pulse,
    end: Timestamp,
    children: Mutex<Vec<Child>>,
    /// What was unexpected of children that were killed.
    odd: Mutex<Vec<String>>,
    processes: AtomicU32,
    /// Workers that faults start, and their number.
    more_workers: StdMutex<JoinSet<()>>,
    more_tasks: AtomicU32,
}

struct Child {
    process: Process,
    number: u32,
    /// Returns the lines that were not events.
    reader: JoinHandle<Vec<String>>,
}

impl Child {
    /// The unexpected output of a child that has ended. The last line of one that was killed may be incomplete.
    async fn unexpected_output(self, killed: bool) -> Option<String> {
        let lines = self.reader.await.unwrap_or_default();
        let said = self.process.stderr();
        if said.is_empty() && lines.len() <= usize::from(killed) {
            return None;
        }
        let number = self.number;
        Some(format!("process {number} said {lines:?} and {said:?}"))
    }
}

impl RedisRun {
    async fn new(seed: u64, workload: Workload, config: &RunConfig) -> Self {
        let (history, resource) = (History::default(), Resource::default());
        let durable = seed.is_multiple_of(2) || !forgets(workload.lock_kind);
        let mut servers = Servers::start(config.ground, durable, &workload).await;
        if workload.lock_kind == LockKind::Semaphore {
            set_permits(&servers.urls()[0], &workload.keys).await;
        }
        let wires = servers.wires().await;
        let served = resource.serve().await.expect("a port for the resource");
        let urls = servers.urls();
        let mut client_sets = Vec::new();
        for _ in 0..config.scale.client_sets {
            let program = connect(&urls, workload.lease, config.flaw).await;
            client_sets.push(program.expect("the clients"));
        }
        let time = Time::Machine;
        let end = time.now() + timestamp(config.scale.faulty + config.scale.undisturbed);
        let context = WorkerContext {
            process: 0,
            seed,
            workload,
            time,
            sink: Sink::History(history.clone()),
            flaw: None,
        };
        Self {
            pulse: context.pulse(),
            context,
            history,
            servers: Mutex::new(servers),
            urls,
            wires,
            resource,
            served,
            client_sets,
            config: config.clone(),
            end,
            children: Mutex::default(),
            odd: Mutex::default(),
            processes: AtomicU32::new(1),
            more_workers: StdMutex::default(),
            more_tasks: AtomicU32::new(0),
        }
    }

    async fn play(mut self, plans: &FaultPlans) -> Outcome {
        let begin = Instant::now();
        for _ in 0..self.config.scale.children {
            let child = self.start_child();
            self.children.lock().await.push(child);
        }
        let numbers = Numbers::watch(&self.client_sets);
        let mut workers = JoinSet::new();
        for task in 0..self.config.scale.tasks {
            let program = &self.client_sets[task as usize % self.client_sets.len()];
            let worker = Worker::new(
                &self.context,
                task,
                program,
                ResourceHandle::Local(self.resource.clone()),
            );
            workers.spawn(worker.work_until(self.end));
        }
        let over = begin + self.config.scale.faulty;
        let (.., wrong, wrong_replicas) = tokio::join!(
            self.inject(&plans.server, begin),
            self.inject(&plans.wire, begin),
            self.inject(&plans.processes, begin),
            self.inject_last(over),
            self.play_calmly(over + self.config.ground.heals()),
            self.play_replicas(),
        );
        let more = std::mem::take(self.more_workers.get_mut().expect("nobody panicked"));
        let all = async { tokio::join!(workers.join_all(), more.join_all()) };
        let is_done = self.ends(all).await;
        let children = self.children_end().await;
        self.wires.end_silence();
        // What they took away is no violation. See the checker for what they do not explain.
        for effect in self.servers.get_mut().unplanned_failovers() {
            let end = self.context.time.now();
            self.note_fault(String::from("UnplannedFailover"), effect, (end, end), false);
        }
        let name = (self.config.ground.name(), self.context.seed);
        let bounds = self.bounds();
        let mut outcome = evaluate(name, &self.history, &bounds, &self.resource);
        for (rule, what) in wrong.into_iter().chain(wrong_replicas) {
            outcome.found(rule, what);
        }
        if !is_done {
            outcome.found("A11", String::from("workers that never end"));
        }
        children
            .into_iter()
            .for_each(|odd| outcome.found("A11", odd));
        if let Some(wrong) = numbers.wrong().await {
            outcome.found("A14", wrong);
        }
        if let Some(left) = self.leftovers().await {
            outcome.found("A10", left);
        }
        let wrong = match self.context.workload.lock_kind {
            LockKind::Semaphore => self.wrong_sum().await,
            LockKind::Latch => self.wrong_counts().await,
            _ => None,
        };
        if let Some(wrong) = wrong {
            outcome.found("A9", wrong);
        }
        outcome
    }

    async fn play_replicas(&self) -> Vec<calm::Wrong> {
        let is_played = self.config.ground == Ground::Server && !self.config.only_kills;
        match self.context.workload.lock_kind {
            LockKind::Reentrant if is_played => self.replica_stops().await,
            _ => Vec::new(),
        }
    }

    fn bounds(&self) -> Bounds {
        bounds(self.config.ground, self.context.workload.lock_kind)
    }

    /// How long workers and processes may be silent before they end.
    fn hangs_after(&self) -> Duration {
        self.config.scale.undisturbed + self.config.ground.quiet()
    }

    /// Whether all workers end. Those that wait for the same key may stay inside one after the other for a long time each, so
    /// they hang only if nothing happens.
    async fn ends(&self, workers: impl Future) -> bool {
        let mut workers = pin!(workers);
        let mut happened = self.history.operation_events();
        loop {
            let ended = self.pulse.timeout(self.hangs_after(), workers.as_mut());
            if ended.await.is_ok() {
                return true;
            }
            let now = self.history.operation_events();
            if now == happened {
                return false;
            }
            happened = now;
        }
    }

    fn start_child(&self) -> Child {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let config = ChildConfig {
            urls: self.urls.clone(),
            resource: self.served.addr(),
            process: number,
            seed: self.context.seed,
            tasks: self.config.scale.tasks_of_a_child,
            end: self.end,
            workload: self.context.workload.clone(),
        };
        let mut process = config.start(&self.config.binary);
        let (mut lines, history) = (process.take_output(), self.history.clone());
        let reader = tokio::spawn(async move {
            let mut odd = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(event) => history.add(event),
                    Err(_) => odd.push(line),
                }
            }
            odd
        });
        Child {
            process,
            number,
            reader,
        }
    }

    /// Waits for the children. Returns what was unexpected of any child of the run.
    async fn children_end(&self) -> Vec<String> {
        let mut odd = std::mem::take(&mut *self.odd.lock().await);
        for mut child in self.children.lock().await.drain(..) {
            let ended = child.process.wait(NEVER);
            match self.pulse.timeout(self.hangs_after(), ended).await {
                Ok(status) if status.success() => {}
                Ok(status) => odd.push(format!("process {}: {status}", child.number)),
                Err(_) => {
                    odd.push(format!("process {} never ended", child.number));
                    child.process.kill();
                }
            }
            odd.extend(child.unexpected_output(false).await);
        }
        odd
    }
}

/// Whether a server may lose its data. Not one that keeps a number, which nothing restores, nor one of a quorum.
fn forgets(lock_kind: LockKind) -> bool {
    !matches!(
        lock_kind,
        LockKind::Semaphore | LockKind::Red | LockKind::Latch
    )
}

async fn set_permits(url: &str, keys: &[String]) {
    let client = Client::connect(url).await.expect("a server");
    for key in keys {
        let set = client.semaphore(key).try_set_permits(PERMITS).await;
        assert!(set.expect("a server without faults"));
    }
}

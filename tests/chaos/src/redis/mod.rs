//! Runs on real servers, with clients in this process and in children, and faults of all of them. See [`Ground`] for what
//! the servers are.

mod calm;
pub mod child;
mod children;
mod config;
mod ground;
mod inject;
mod leftovers;
mod numbers;
mod plan;
mod replicas;
mod slow_servers;
mod wire_fault;
mod wires;

use std::pin::pin;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use distlock::Client;
use distlock_tests::Pulse;
use distlock_tests::any_lock::{LockKind, PERMITS};
use distlock_tests::resource::{Resource, ResourceHandle, Served};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::child::connect;
use self::children::Child;
use self::ground::Servers;
use self::numbers::Numbers;
use self::plan::FaultPlans;
use self::slow_servers::{Late, SlowServers};
use self::wires::Wires;
use super::time::{Time, timestamp};
use super::worker::{Sink, Worker, WorkerContext};
use super::{Outcome, Workload, evaluate};
use crate::history::{Bounds, History, Timestamp};

pub use self::config::{RunConfig, Scale};
pub use self::ground::Ground;

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
    margin: 0,
};

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
            let program = connect(&urls, &workload, config.flaw).await;
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
            travellers: Default::default(),
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
        let slow_servers = self.watch_servers();
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
        // Data that they took away is not a violation. The checker knows what they do not explain.
        for effect in self.servers.get_mut().unplanned_failovers() {
            let end = self.context.time.now();
            self.note_fault(String::from("UnplannedFailover"), effect, (end, end), false);
        }
        slow_servers.add_to(&self.history);
        drop(slow_servers);
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

    /// Clients wait a sixth of the lease for an answer. A third of that is enough for some of them to give up, since a command also
    /// waits in the client and in the proxy.
    fn watch_servers(&mut self) -> SlowServers {
        let ground = self.config.ground;
        let late = Late {
            after: timestamp(ground.lease()) / 18,
            heals: timestamp(ground.heals()),
        };
        let servers = self.servers.get_mut().with_data();
        SlowServers::watch(servers, late)
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            margin: timestamp(self.context.workload.margin),
            ..bounds(self.config.ground, self.context.workload.lock_kind)
        }
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
